"""The protocol between the two processes of `checkpoint save`: requests and reports, as lines of JSON.

Only the standard library is imported here, because the watching process imports it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["saved", "unchanged", "superseded", "dropped", "unusable", "failed", "uncleaned", "left"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A complete checkpoint that may have to be uploaded."""

    name: str
    fingerprint: str
    is_from_start: bool = False
    """Whether the folder held it when the sidecar started, so that the storage may have it."""


@dataclass(frozen=True, slots=True)
class UploadReport:
    """What happened to a candidate: `dropped` if it has changed, `unusable` until it changes, `failed` for now.

    `left` names an upload whose files could not be removed, `uncleaned` has the reason why old files could not.
    """

    outcome: Outcome
    name: str = ""
    fingerprint: str = ""
    reason: str = ""
    is_transient: bool = False
    step: int | None = None
    time: str = ""
    byte_count: int = 0
    uri: str = ""
    upload_id: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """What the uploading process needs to know, besides its environment."""

    storage_uri: str
    store_path: str
    path: str
    keep: int
    node: int
    per_node: bool
    max_bandwidth: int
    parallel: int
    retries: int
    log_format: str
    log_level: str
    candidates: list[Wanted]
    leftovers: list[str]
    leftover_seconds: int = 3600


def encode(value: UploadReport | UploadRequest) -> str:
    """One line of ASCII, without its end."""
    return json.dumps(dataclasses.asdict(value))


def read_report(line: str) -> UploadReport:
    """Raises ValueError, TypeError."""
    return UploadReport(**json.loads(line))


def read_request(line: str) -> UploadRequest:
    found: dict[str, Any] = json.loads(line)
    candidates = [Wanted(**each) for each in found.pop("candidates")]
    return UploadRequest(candidates=candidates, **found)
