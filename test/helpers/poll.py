"""Waiting in tests: poll with a deadline instead of sleeping for as long as it might take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PERIOD_SECONDS = 0.01


def eventually(predicate: Callable[[], T], timeout: float = 10.0, period: float = PERIOD_SECONDS) -> T:
    """The first true answer of `predicate`; AssertionError, with the last answer, after `timeout` real seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; the last answer was {answer!r}")
        time.sleep(period)
