"""The limit of an upload."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.storage.checkpoints.bandwidth import Bandwidth


@dataclass(slots=True)
class SleepingClock:
    """A clock that only moves while somebody sleeps, or by `advance`."""

    slept: float = 0.0
    moved: float = 0.0

    def monotonic(self) -> float:
        return self.slept + self.moved

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        raise NotImplementedError

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        self.slept += seconds
        return stop.is_set()


def test_bytes_beyond_the_first_second_wait_for_the_limit() -> None:
    clock = SleepingClock()
    bandwidth = Bandwidth(100, clock)
    for _ in range(10):
        bandwidth.take(50, threading.Event())
    assert clock.slept == 4.0


def test_time_that_has_passed_counts_for_one_second_at_most() -> None:
    clock = SleepingClock()
    bandwidth = Bandwidth(100, clock)
    clock.moved += 1000
    bandwidth.take(300, threading.Event())
    assert clock.slept == 2.0


def test_without_a_limit_nobody_waits() -> None:
    clock = SleepingClock()
    Bandwidth(0, clock).take(10**12, threading.Event())
    assert clock.slept == 0.0
