"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# The interval, in real time, in which a sleeping thread checks its stop signal.
_POLL_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class _Waiter:
    """A thread that waits on a fake clock until a moment, or until its condition is notified."""

    until: float
    condition: threading.Condition | None = None


class FakeClock:
    """A clock that stands still until a test moves it.

    A move wakes all waiters, and `waiters` counts those that then wait again, so that a test knows when all have seen
    the time. If it `is_strict`, a move wakes only waiters whose time has passed, as a real clock does: that reveals a
    missing notification, but a notified thread counts as waiting until it has woken.

    No wake-up is lost. A thread computes how long to wait from a time it has read, then waits; if the clock moved in
    between, it would wait too long. So the clock remembers for each thread at which move it last read the time: a wait
    that is based on an outdated time returns at once, and the caller's loop reads the time again.
    """

    def __init__(self, now: datetime | None = None, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0
        self._moves = 0
        self._changed = threading.Condition()  # guards everything here; notified when time or the waiters change
        self._waiters: list[_Waiter] = []
        self._read = threading.local()  # .moves: how many moves there had been when this thread last read the time

    def monotonic(self) -> float:
        with self._changed:
            self._read.moves = self._moves
            return self._monotonic

    def now(self) -> datetime:
        with self._changed:
            self._read.moves = self._moves
            return self._now

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        waiter = self._register(condition, timeout_seconds)
        try:
            # A move or notification since the registration is not lost: the caller holds the condition.
            condition.wait(None if waiter else 0.0)
        finally:
            with self._changed:
                self._drop(waiter)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        with self._changed:
            waiter = _Waiter(self._monotonic + seconds)
            self._add(waiter)
            try:
                while not stop.is_set() and self._monotonic < waiter.until:
                    self._changed.wait(_POLL_SECONDS)
            finally:
                self._drop(waiter)
        return stop.is_set()

    def advance(self, seconds: float) -> None:
        """Moves both scales forward and wakes the waiters, which then return or wait again."""
        with self._changed:
            self._monotonic += seconds
            self._now += timedelta(seconds=seconds)
            self._moves += 1
            woken = [waiter for waiter in self._waiters if self._is_woken(waiter)]
            # No longer counted, so that `waiters` grows again only once they have seen the new time.
            self._waiters = [waiter for waiter in self._waiters if not self._is_woken(waiter)]
            self._changed.notify_all()
        for condition in {waiter.condition for waiter in woken if waiter.condition is not None}:
            with condition:
                condition.notify_all()

    def jump(self, seconds: float) -> None:
        """Sets wall time forward or (negative) back, as an administrator or NTP does, without waking any thread."""
        with self._changed:
            self._now += timedelta(seconds=seconds)

    @property
    def waiters(self) -> int:
        """The number of threads that wait on this clock and have read its present time."""
        with self._changed:
            return len(self._waiters)

    def await_waiters(self, count: int, timeout_seconds: float = 60.0) -> None:
        """Returns once at least `count` threads wait, so that a test knows they sleep before it moves the time.

        The limit is real time. Raises TimeoutError.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= count, timeout_seconds):
                raise TimeoutError(f"{len(self._waiters)} threads wait on the clock, not {count}")

    def _is_woken(self, waiter: _Waiter) -> bool:
        is_over = waiter.until <= self._monotonic
        return is_over or (waiter.condition is not None and not self._is_strict)

    def _register(self, condition: threading.Condition, timeout_seconds: float | None) -> _Waiter | None:
        """Returns None if the thread must not wait: no time is left, or the clock has moved since it was read."""
        with self._changed:
            read_at = getattr(self._read, "moves", self._moves)
            self._read.moves = self._moves
            if timeout_seconds is not None and (timeout_seconds <= 0 or read_at != self._moves):
                return None
            limit = float("inf") if timeout_seconds is None else timeout_seconds
            waiter = _Waiter(self._monotonic + limit, condition)
            self._add(waiter)
            return waiter

    def _add(self, waiter: _Waiter) -> None:
        self._waiters.append(waiter)
        self._changed.notify_all()

    def _drop(self, waiter: _Waiter | None) -> None:
        if waiter in self._waiters:  # else `advance` has woken it
            self._waiters.remove(waiter)
