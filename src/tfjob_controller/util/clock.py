"""Time as a parameter.

Everything in this package that reads the time, or waits for it to pass, does so through a `Clock`, so that a test can
control it. Durations are seconds on the monotonic scale; wall time is only for what people and the API read.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Returns the time and waits. Safe to use from any thread."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def now(self) -> datetime:
        """Wall time, with a time zone (UTC)."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        """Wait on a condition that the caller holds until it is notified or the time has passed (None: no limit).

        May return early, as conditions do: the caller checks its state and the time again in a loop.
        """

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for `seconds` or until `stop` is set, whichever is first; returns True if `stop` is set."""


class RealClock:
    """The machine's clock. A longer wait than the platform allows (a server may send any Retry-After) is shortened."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        condition.wait(None if timeout_seconds is None else min(timeout_seconds, threading.TIMEOUT_MAX))

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return stop.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX))
