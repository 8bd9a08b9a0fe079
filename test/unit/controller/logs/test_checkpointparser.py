"""The rules of controller/logs/checkpointparser.py."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.controller.logs.checkpointparser import (
    MAX_KEPT_LINES,
    CheckpointLogParser,
    checkpoint_lines,
)
from tfjob_controller.controller.logs.metricparser import MAX_LINE_BYTES, MetricValue
from tfjob_controller.jobs.state.observed import CheckpointLine, SavedCheckpoint, UnsavedCheckpoint
from tfjob_controller.storage.checkpoints.report import UploadReport
from tfjob_controller.storage.checkpoints.sidecarlog import SidecarLog
from tfjob_controller.util.timestamps import format_time

UPLOAD = "0123456789abcdef" * 2
TIME = "2026-01-01T00:00:07Z"
STAMP = "2026-01-01T00:00:08.500000000Z"
SAVED = {
    "name": "checkpoint-500",
    "step": 500,
    "time": TIME,
    "bytes": 4096,
    "uri": "s3://bucket/job/data/checkpoint-500",
    "uploadId": UPLOAD,
    "seconds": 1.5,
}


def logged(**changed: Any) -> bytes:
    """A line as the API server sends it."""
    return f"{STAMP} {json.dumps({'checkpoint': SAVED | changed})}\n".encode()


def read(*pieces: bytes) -> tuple[CheckpointLine, ...]:
    parser = CheckpointLogParser()
    found = {}
    for each in pieces:
        found |= parser.feed(each)
    found |= parser.end()
    times = [format_time(each.logged_at) for each in found.values() if each.logged_at is not None]
    return checkpoint_lines(MetricValue(each.value, time) for each, time in zip(found.values(), times, strict=True))


def test_it_reads_what_the_sidecar_writes() -> None:
    out = io.StringIO()
    log = SidecarLog(FakeClock(), out=out, error=out)
    log.info("watching for checkpoints")
    report = UploadReport("saved", "ä\n/🦀-7", step=7, time=TIME, byte_count=9, uri="pvc://c/d", upload_id=UPLOAD)
    log.saved(report)
    log.saved(UploadReport("saved", "é🦀" * 126, time=TIME, uri="gs://" + "🦀" * 995, upload_id=UPLOAD[::-1]))
    log.failed("checkpoint-8", "no\nrights")
    text = "".join(f"{STAMP} {line}\n" for line in out.getvalue().splitlines())
    # A line feed is in no name that the sidecar accepts.
    assert read(text.encode()) == (
        SavedCheckpoint("é🦀" * 126, None, TIME, 0, "gs://" + "🦀" * 995),
        UnsavedCheckpoint("checkpoint-8", "no rights", "2026-01-01T00:00:08Z"),
    )


def test_the_lines_do_not_depend_on_where_the_pieces_are_cut() -> None:
    text = b"x\n" + logged() + logged(name="b", step=None, uploadId="f" * 32)
    whole = read(text)
    assert [each.name for each in whole] == ["checkpoint-500", "b"]
    assert all(read(text[:at], text[at:]) == whole for at in range(len(text)))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": "a" * 254},
        {"name": "a\u202eb"},
        {"step": -1},
        {"step": 2**63},
        {"step": 1.5},
        {"time": "yesterday"},
        {"time": "2026-01-01T00:00:07+01:00"},
        {"bytes": 2**60},
        {"uri": "s3://" + "x" * 1000},
        {"uploadId": "../.."},
        {"more": 1},
    ],
    ids=str,
)
def test_a_line_with_anything_else_is_ignored(changed: dict[str, Any]) -> None:
    assert read(logged()) != ()
    assert read(logged(**changed)) == ()


@pytest.mark.parametrize(
    "line",
    [
        b'{"checkpoint": null}',
        b'{"checkpoint": {"name": "x"}, "checkpointFailed": {"name": "x", "reason": "y"}}',
        b'{"checkpoint": ' + b'{"a": ' * 2000 + b"}" * 2001,
        b'{"checkpoint": {"name": "\xff"}}',
        b'loss=1 {"checkpoint": {}}',
    ],
    ids=range(5),
)
def test_what_is_not_such_a_line_is_ignored(line: bytes) -> None:
    assert read(STAMP.encode() + b" " + line + b"\n") == ()


def test_a_line_without_a_time_of_its_log_is_ignored() -> None:
    assert read(logged().partition(b" ")[2]) == ()
    assert read(b"9999-99-99T00:00:00Z " + logged().partition(b" ")[2]) == ()


def test_a_line_that_does_not_end_takes_no_memory_and_hides_none_after_it() -> None:
    parser = CheckpointLogParser()
    for _ in range(20):
        assert parser.feed(b"{" * MAX_LINE_BYTES) == {}
        assert len(parser._rest) <= MAX_LINE_BYTES
    assert len(parser.feed(b"\n" + logged())) == 1


def test_of_many_lines_the_last_are_kept() -> None:
    text = b"".join(logged(name=str(number), uploadId=f"{number:032x}") for number in range(3 * MAX_KEPT_LINES))
    names = [int(each.name) for each in read(text)]
    assert names == list(range(2 * MAX_KEPT_LINES, 3 * MAX_KEPT_LINES))


def test_the_time_of_the_last_line_is_known_whatever_it_says() -> None:
    parser = CheckpointLogParser()
    parser.feed(logged() + b"2026-01-01T00:00:09Z other\n")
    assert parser.last_logged_at is not None
    assert format_time(parser.last_logged_at) == "2026-01-01T00:00:09Z"
