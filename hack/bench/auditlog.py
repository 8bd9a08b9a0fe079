"""Requests as the API server counts them: its audit log."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
_EVERYTHING: tuple[Object, ...] = ({"level": "Metadata"},)
# A request is logged once, when it was answered; a watch, when it has ended.
_ONCE = ("RequestReceived", "ResponseStarted")


# In megabytes: a log that went on in another file would be read in part.
_NEVER_ROTATED = 100_000


@contextlib.contextmanager
def audit_log(
    rules: Sequence[Object] = _EVERYTHING, omitted_stages: Sequence[str] = _ONCE
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Where the log will be, and the flags that make kube-apiserver write it."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder) / "policy.json", Path(folder) / "audit.log"
        policy.write_text(json.dumps({**_POLICY, "rules": [*rules], "omitStages": [*omitted_stages]}))
        yield (
            log,
            (f"--audit-policy-file={policy}", f"--audit-log-path={log}", f"--audit-log-maxsize={_NEVER_ROTATED}"),
        )


def entries_of(log: Path, namespace: str, *, with_events: bool = False) -> Iterator[Object]:
    """The requests in a namespace without watches, and without those of events unless they are asked for."""
    for line in log.read_text().splitlines():
        entry: Object = json.loads(line)
        reference = entry.get("objectRef") or {}
        is_counted = entry["verb"] != "watch" and (with_events or reference.get("resource") != "events")
        if is_counted and reference.get("namespace") == namespace:
            yield entry
