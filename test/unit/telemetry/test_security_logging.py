"""Names, reasons and messages in the log come from strangers: none of them forges a line or rules a terminal."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tfjob_controller.telemetry.logging import configure

# A whole line of each format, an end of a JSON object, sequences of a terminal, line ends that only some readers know.
FORGED = [
    pytest.param('x\n{"level": "error", "event": "forged"}', id="a JSON line"),
    pytest.param("x\r\n2026-01-01T00:00:00Z [error    ] forged [controller]", id="a console line"),
    pytest.param('x", "level": "error', id="a field of its own"),
    pytest.param("\x1b[2J\x1b]0;owned\x07", id="terminal sequences"),
    pytest.param("\x9b2J\x85\x00\x7f", id="sequences of eight bits"),
    pytest.param("a\u2028b\u2029c\u202ed", id="lines and directions of Unicode"),
    pytest.param("\ud800", id="half a character"),
]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield io.StringIO()
    structlog.reset_defaults()
    root.handlers = before
    root.setLevel(level)


def log_all(text: str) -> int:
    """As a value, in a value, as a name, in what a library says and in an exception; returns how many lines that is."""
    log = structlog.get_logger("test")
    log.info("job failed", key=text, reason=text, nested={"message": [text]})
    log.info("job failed", **{text: "value"})
    logging.getLogger("urllib3").warning("retrying %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("sync failed")
    return 4


@pytest.mark.parametrize("text", FORGED)
def test_in_json_a_line_is_one_object_with_its_own_fields(stream: io.StringIO, text: str) -> None:
    configure("json", "info", stream)
    count = log_all(text)
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    assert len(lines) == count
    assert all(line.isascii() and line.isprintable() for line in lines)
    found = [json.loads(line) for line in lines]
    assert [each["level"] for each in found] == ["info", "info", "warning", "error"]
    assert (found[0]["key"], found[0]["nested"]) == (text, {"message": [text]})


@pytest.mark.parametrize("text", FORGED)
def test_for_people_a_line_begins_with_our_own_time_and_rules_no_terminal(stream: io.StringIO, text: str) -> None:
    configure("console", "info", stream)
    count = log_all(text)
    lines = stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    # Of a traceback further lines are set in.
    assert len([line for line in lines if line and not line.startswith(" ")]) == count
