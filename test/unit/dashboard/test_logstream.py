"""The lines of a log as HTML and as a file."""

from __future__ import annotations

import asyncio
import json

import pytest

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.client.logs import LogOptions
from tfjob_controller.dashboard.pages.logstream import (
    MAX_LINE,
    LogChoice,
    LogPump,
    PumpEnd,
    file_pieces,
    line_html,
)
from tfjob_controller.dashboard.users import User


@pytest.mark.parametrize(
    ("line", "html"),
    [
        (b"plain", "plain"),
        (b"2026-01-02T03:04:05.123456789Z step=1", "2026-01-02T03:04:05\x1fstep=1"),
        (b"2026-01-02T03:04:05Z ", "2026-01-02T03:04:05\x1f"),
        (b"2026-01-02T03:04:05Z 10%\r20%\r", "2026-01-02T03:04:05\x1f20%"),
        (b"2026-01-02T03:04:05Z 2020-01-01T00:00:00Z said", "2026-01-02T03:04:05\x1f2020-01-01T00:00:00Z said"),
        (b"2026-01-02T03:04:05Z a\x1fb<i>", "2026-01-02T03:04:05\x1fab&lt;i&gt;"),
    ],
)
def test_a_line_is_shown_after_its_time(line: bytes, html: str) -> None:
    assert line_html(line) == html


def test_a_long_line_is_cut_after_its_time() -> None:
    assert line_html(b"2026-01-02T03:04:05Z " + b"x" * 10_000) == "2026-01-02T03:04:05\x1f" + "x" * MAX_LINE


def test_a_file_has_all_lines_in_bounded_pieces() -> None:
    lines = [b"a" * 10, b"", b"b" * 200_000, b"\xff\x00"]
    pieces = list(file_pieces(iter(lines)))
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert max(len(piece) for piece in pieces) <= 64 * 1024
    assert list(file_pieces(iter([]))) == []


def test_a_file_that_is_too_large_says_so_at_its_end() -> None:
    (piece,) = file_pieces(iter([b"12345", b"6789", b"more"]), most=11)
    assert piece == b"12345\n6789\n[the rest is left out: a file has at most 11 bytes]\n"


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (LogChoice("worker-0"), "train-worker-0.log"),
        (LogChoice("worker-0", "side", is_previous=True), "train-worker-0-side-previous.log"),
        (LogChoice('x"\r\n; a=/../é'), "train-x-a-..-.log"),
    ],
)
def test_the_name_of_a_file_is_safe_in_a_header(choice: LogChoice, name: str) -> None:
    assert choice.file_name("train") == name


def test_a_choice_is_bounded() -> None:
    choice = LogChoice.of({"replica": "r" * 1000, "container": "c" * 1000, "previous": "yes"})
    assert (len(choice.replica), len(choice.container), choice.is_previous) == (100, 63, False)


class FaultyRequester(Answering):
    """Has one TFJob; the second request meets a fault that nobody expects."""

    def answer(self, request: Request) -> bytes:
        if len(self.sent) > 1:
            raise ValueError("not foreseen")
        return json.dumps({"metadata": {"name": "train", "namespace": "team", "uid": "u1"}}).encode()


def test_a_log_ends_with_a_sentence_after_an_unexpected_error() -> None:
    async def read() -> PumpEnd | None:
        user = User("me", FaultyRequester(), "team", "there", FakeClock())
        job = user.client.job("train", "trainjob")
        pump: LogPump[bytes] = LogPump(user, job, LogOptions(), lambda lines: lines, lambda text: None, 10)
        pump.start()
        try:
            return (await pump.take(10.0))[1]
        finally:
            pump.stop()

    end = asyncio.run(read())
    assert end is not None
    assert end.problem.startswith("The log cannot be read")
