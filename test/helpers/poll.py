"""Polling with a deadline for tests, instead of sleeping for a time that might be sufficient."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PERIOD_SECONDS = 0.01
# Most predicates send requests to an API server on the same machine, whose cores all tests share. If a result is not
# there soon it takes seconds: the time between two polls grows, and is a multiple of what the last one took.
_LONGEST_PERIOD_SECONDS = 0.25
_GROWTH = 1.25
_REST = 3.0
# A deadline only ends waits that hang; it is no requirement on speed, because anything may take seconds on a busy
# machine.
PATIENCE_SECONDS = 180.0


def eventually(predicate: Callable[[], T], timeout: float = 10.0, period: float | None = None) -> T:
    """Returns the first true result of `predicate`; see `until`."""
    return until(predicate, bool, timeout, period)


def until(
    read: Callable[[], T], is_right: Callable[[T], object], timeout: float = 10.0, period: float | None = None
) -> T:
    """Returns the first result of `read` that is right; raises AssertionError with the last one after `timeout`.

    The limit is at least `PATIENCE_SECONDS`. It polls at growing intervals. A `period` is a fixed interval: what is
    true only for a moment needs a short one.
    """
    pause = PERIOD_SECONDS
    timeout = max(timeout, PATIENCE_SECONDS)
    deadline = time.monotonic() + timeout
    while True:
        begin = time.monotonic()
        answer = read()
        if is_right(answer):
            return answer
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {timeout} s; the last answer was {answer!r}")
        if period is not None:
            time.sleep(period)
            continue
        time.sleep(max(pause, min(_REST * (now - begin), 4 * _LONGEST_PERIOD_SECONDS)))
        pause = min(pause * _GROWTH, _LONGEST_PERIOD_SECONDS)


def never(predicate: Callable[[], object], seconds: float, period: float = PERIOD_SECONDS) -> None:
    """Raises AssertionError with the first true result of `predicate` within so many real seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = predicate()
        if answer:
            raise AssertionError(f"it came to be so: {answer!r}")
        time.sleep(period)
