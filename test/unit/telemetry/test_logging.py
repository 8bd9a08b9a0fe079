"""The rules of telemetry/logging.py. No name, reason or message of strangers forges a line or rules a terminal."""

from __future__ import annotations

import errno
import io
import json
import logging
from datetime import datetime

import pytest
import structlog

from tfjob_controller.telemetry.logging import configure


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_time_level_and_logger() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    structlog.get_logger("a.module").info("watch started", resource="pods")
    (line,) = lines(stream)
    assert {key: line[key] for key in ("event", "level", "logger", "resource")} == {
        "event": "watch started",
        "level": "info",
        "logger": "a.module",
        "resource": "pods",
    }
    assert datetime.fromisoformat(str(line["timestamp"])).tzinfo is not None


def test_a_logger_made_before_the_set_up_follows_it() -> None:
    early = structlog.get_logger("early")
    stream = io.StringIO()
    configure("json", "info", stream)
    early.warning("still heard")
    assert lines(stream)[0]["event"] == "still heard"


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    configure("json", "warning", stream)
    structlog.get_logger("m").info("quiet")
    structlog.get_logger("m").warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_what_a_thread_bound_is_on_its_lines() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    with structlog.contextvars.bound_contextvars(reconcile_id="r1", key="ns/job"):
        structlog.get_logger("m").info("inside")
    structlog.get_logger("m").info("outside")
    inside, outside = lines(stream)
    assert (inside["reconcile_id"], inside["key"]) == ("r1", "ns/job")
    assert "reconcile_id" not in outside


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(log_format: str) -> None:
    stream = io.StringIO()
    configure(log_format, "info", stream)

    def fails(token: str) -> None:
        raise ValueError(f"broken after {len(token)} letters")

    try:
        fails("-".join(["s3cr3t", "value"]))
    except ValueError:
        structlog.get_logger("m").exception("it failed")
    assert "ValueError: broken after 12 letters" in stream.getvalue()
    assert "s3cr3t-value" not in stream.getvalue()


def test_the_standard_library_s_warnings_come_in_the_same_form() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    logging.getLogger("urllib3").info("a connection was opened")
    logging.getLogger("urllib3").warning("pool is full")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("pool is full", "warning", "urllib3")


def test_console_lines_are_for_people() -> None:
    stream = io.StringIO()
    configure("console", "info", stream)
    structlog.get_logger("m").info("watch started", resource="pods")
    assert "watch started" in stream.getvalue()
    assert "resource=pods" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


class FullDisk(io.StringIO):
    """A stream onto a disk that is full for a while."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)

    def flush(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_drops_log_lines_without_errors_until_it_has_space() -> None:
    stream = FullDisk()
    configure("json", "info", stream)
    structlog.get_logger("m").info("lost")
    logging.getLogger("a.library").warning("lost too")
    stream.is_full = False
    structlog.get_logger("m").info("heard")
    assert [line["event"] for line in lines(stream)] == ["heard"]


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
def test_in_json_a_line_is_one_object_with_its_own_fields(text: str) -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    count = log_all(text)
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    assert len(lines) == count
    assert all(line.isascii() and line.isprintable() for line in lines)
    found = [json.loads(line) for line in lines]
    assert [line["level"] for line in found] == ["info", "info", "warning", "error"]
    assert (found[0]["key"], found[0]["nested"]) == (text, {"message": [text]})


@pytest.mark.parametrize("text", FORGED)
def test_for_people_a_line_begins_with_our_own_time_and_rules_no_terminal(text: str) -> None:
    stream = io.StringIO()
    configure("console", "info", stream)
    count = log_all(text)
    lines = stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    # Of a traceback further lines are set in.
    assert len([line for line in lines if line and not line.startswith(" ")]) == count
