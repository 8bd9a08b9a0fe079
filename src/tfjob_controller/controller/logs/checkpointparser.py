"""Finds the lines of `checkpoint save` in the log of its container, and checks them.

The command prints a line of JSON for each checkpoint, and one when saving begins to fail. The log is of a pod of a
tenant, who chooses names and may print anything, so a line counts only if it has exactly the known fields, each within
its limits. All others are ignored. Lines are bounded before they are parsed, and so is the number of lines.

Source: storage/checkpoints/sidecarlog.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

import msgspec

from tfjob_controller.controller.logs.metricparser import MAX_LINE_BYTES, LoggedMetric, MetricValue
from tfjob_controller.jobs.state.observed import CheckpointLine, SavedCheckpoint, UnsavedCheckpoint
from tfjob_controller.jobs.status.checkpoints import printable
from tfjob_controller.util.text import PRINTABLE_PATTERN

# More than are logged between two syncs; older ones are dropped.
MAX_KEPT_LINES = 100
_STAMPED = re.compile(
    rb"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
    rb'(?P<line>\{"(?:checkpoint|checkpointFailed)": \{.*\}\})'
)
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?= )")
_MOST_BYTES = 5 * 2**40
_MOST_SECONDS = 10.0**9
_MAX_NAME, _MAX_TEXT = 253, 1000
# How many bytes of a line are kept at least: each character of a name and an URI may take twelve.
_Name = Annotated[str, msgspec.Meta(max_length=_MAX_NAME, pattern=PRINTABLE_PATTERN)]
_Text = Annotated[str, msgspec.Meta(max_length=_MAX_TEXT, pattern=PRINTABLE_PATTERN)]


class _Saved(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_NAME, pattern=PRINTABLE_PATTERN)]
    step: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None
    time: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
    byte_count: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BYTES)] = msgspec.field(name="bytes")
    uri: _Text
    upload_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=_MOST_SECONDS)]


class _Failed(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: _Name
    reason: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]


class _Line(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    checkpoint: _Saved | None = None
    checkpoint_failed: _Failed | None = None


_decode = msgspec.json.Decoder(_Line).decode


class CheckpointLogParser:
    """Parses one log piece by piece, as `MetricParser` does: the last line about each upload, and about each name."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_dropping = False
        self._stamp = b""

    @property
    def last_logged_at(self) -> datetime | None:
        """When the last complete line was logged; None if it does not say."""
        return _moment(self._stamp)

    def feed(self, data: bytes) -> Mapping[str, LoggedMetric]:
        """The usable lines that end in this piece, as their text, by a key of their own; of many the last ones."""
        if self._is_dropping:
            _, end, data = data.partition(b"\n")
            if not end:
                return {}
            self._is_dropping = False
        block, end, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._is_dropping = b"", True
        return self._scan(block) if end else {}

    def end(self) -> Mapping[str, LoggedMetric]:
        """Parses the last line, since the log has ended."""
        return self.feed(b"\n")

    def _scan(self, block: bytes) -> Mapping[str, LoggedMetric]:
        lines = block.split(b"\n")
        newest: dict[str, LoggedMetric] = {}
        for line in lines:
            if match := _STAMP.match(line):
                self._stamp = match[0]
        for line in reversed(lines):
            if len(newest) >= MAX_KEPT_LINES:
                break
            key, logged = _logged(line)
            if logged is not None:
                newest.setdefault(key, logged)
        return dict(reversed(newest.items()))


def checkpoint_lines(kept: Iterable[MetricValue]) -> tuple[CheckpointLine, ...]:
    """What the kept texts say, without those that are not usable."""
    return tuple(line for entry in kept if (line := _line_of(entry.value, entry.log_time)) is not None)


def _logged(line: bytes) -> tuple[str, LoggedMetric | None]:
    """A key and the text of a usable line; none for any other."""
    match = _STAMPED.fullmatch(line) if len(line) <= MAX_LINE_BYTES else None
    moment = _moment(match["stamp"]) if match is not None else None
    if match is None or moment is None:
        return "", None
    read = _read(match["line"])
    if read is None:
        return "", None
    key = f"saved {read.checkpoint.upload_id}" if read.checkpoint is not None else _name_of_failure(read)
    return key, LoggedMetric(match["line"].decode(), moment)


def _name_of_failure(read: _Line) -> str:
    return f"failed {read.checkpoint_failed.name}" if read.checkpoint_failed is not None else ""


def _read(line: bytes | str) -> _Line | None:
    try:
        read = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return read if (read.checkpoint is None) != (read.checkpoint_failed is None) else None


def _line_of(text: str, log_time: str) -> CheckpointLine | None:
    read = _read(text)
    if read is None:
        return None
    if read.checkpoint is not None:
        saved = read.checkpoint
        return SavedCheckpoint(saved.name, saved.step, saved.time, saved.byte_count, saved.uri)
    failed = read.checkpoint_failed
    return UnsavedCheckpoint(failed.name, printable(failed.reason), log_time) if failed is not None else None


def _moment(stamp: bytes) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp.decode("ascii"))
    except ValueError:
        return None
