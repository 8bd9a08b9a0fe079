"""Time as a parameter.

Everything in this package that reads the time, or waits for it to pass, does so through a `Clock`, so that a test can
own it. Durations are seconds on the monotonic scale; wall time is only for what people and the API read.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

# How often a fake clock's sleeper looks at its stop signal in real time; only tests wait for it.
_FAKE_POLL_SECONDS = 0.01


class Clock(Protocol):
    """Tells the time and waits. Safe to use from any thread."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def now(self) -> datetime:
        """Wall time, with a time zone (UTC)."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        """Wait on a condition that the caller holds until it is notified or the time is over (None: no limit).

        May return early, as conditions do: the caller looks at its state again in a loop.
        """

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        """Rest for `seconds` or until `stop` is set, whichever is first; True if `stop` is set."""


class RealClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        condition.wait(timeout_seconds)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return stop.wait(max(0.0, seconds))


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0
        self._moved = threading.Condition()
        self._waiters: list[threading.Condition] = []

    def monotonic(self) -> float:
        with self._moved:
            return self._monotonic

    def now(self) -> datetime:
        with self._moved:
            return self._now

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        with self._moved:
            self._waiters.append(condition)
        try:
            # A notify that comes between the registration and this wait cannot be lost: the caller holds the condition.
            condition.wait(None if timeout_seconds is None else _real_limit(timeout_seconds))
        finally:
            with self._moved:
                self._waiters.remove(condition)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        with self._moved:
            until = self._monotonic + seconds
            self._waiters.append(self._moved)
            try:
                while not stop.is_set() and self._monotonic < until:
                    self._moved.wait(_FAKE_POLL_SECONDS)
            finally:
                self._waiters.remove(self._moved)
        return stop.is_set()

    def advance(self, seconds: float) -> None:
        """Move both scales forward and wake every waiter, which then finds its time over or waits again."""
        with self._moved:
            self._monotonic += seconds
            self._now += timedelta(seconds=seconds)
            self._moved.notify_all()
            waiters = [waiter for waiter in self._waiters if waiter is not self._moved]
        for condition in waiters:
            with condition:
                condition.notify_all()

    @property
    def waiters(self) -> int:
        """How many threads wait on this clock now: a test knows that somebody sleeps before it moves the time."""
        with self._moved:
            return len(self._waiters)


def _real_limit(timeout_seconds: float) -> float | None:
    """A zero wait returns at once; any other lasts until `advance` or a notify."""
    return 0.0 if timeout_seconds <= 0 else None
