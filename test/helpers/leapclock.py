"""The machine's clock, on which a test may let time pass: for deadlines of a program that otherwise runs as it is.

A deadline that is short races with the steps that a test takes before it; one that is long makes the test long. With
this clock the deadline is long, and over when the test says so.
"""

from __future__ import annotations

import threading
from datetime import datetime

from tfjob_controller.util.clock import RealClock


class LeapClock:
    """A `tfjob_controller.util.clock.Clock`. Wall time stays real. A thread that sleeps is not woken by a leap."""

    def __init__(self) -> None:
        self._real = RealClock()
        self._ahead_seconds = 0.0

    def leap(self, seconds: float) -> None:
        """From now on the monotonic time is so much later. One thread at a time."""
        self._ahead_seconds += seconds

    def monotonic(self) -> float:
        return self._real.monotonic() + self._ahead_seconds

    def now(self) -> datetime:
        return self._real.now()

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        self._real.wait(condition, timeout_seconds)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return self._real.sleep(seconds, stop)
