"""Waiting in tests: poll with a deadline instead of sleeping for as long as it might take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PERIOD_SECONDS = 0.01
# Most looks are requests to an API server on the same machine. What has not come soon takes seconds: nobody has to ask
# a hundred times a second for it.
_LONGEST_PERIOD_SECONDS = 0.1
_GROWTH = 1.25
# A deadline only ends what hangs, and says nothing of speed: on a busy machine everything may take seconds.
_SHORTEST_DEADLINE_SECONDS = 60.0


def eventually(predicate: Callable[[], T], timeout: float = 10.0, period: float | None = None) -> T:
    """The first true answer of `predicate`; AssertionError, with the last answer, after `timeout` real seconds.

    None is given less than a minute. It looks each `period` seconds; without one, ever more seldom.
    """
    pause = PERIOD_SECONDS if period is None else period
    timeout = max(timeout, _SHORTEST_DEADLINE_SECONDS)
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; the last answer was {answer!r}")
        time.sleep(pause)
        if period is None:
            pause = min(pause * _GROWTH, _LONGEST_PERIOD_SECONDS)


def never(predicate: Callable[[], object], seconds: float, period: float = PERIOD_SECONDS) -> None:
    """AssertionError with the first true answer of `predicate` within so many real seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = predicate()
        if answer:
            raise AssertionError(f"it came to be so: {answer!r}")
        time.sleep(period)
