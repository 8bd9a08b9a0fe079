"""The limit of an upload."""

from __future__ import annotations

import threading

from helpers.scripted import PatientClock
from tfjob_controller.storage.checkpoints.bandwidth import Bandwidth


def test_bytes_beyond_the_first_second_wait_for_the_limit() -> None:
    clock = PatientClock()
    bandwidth = Bandwidth(100, clock)
    for _ in range(10):
        bandwidth.take(50, threading.Event())
    assert sum(clock.slept) == 4.0


def test_time_that_has_passed_counts_for_one_second_at_most() -> None:
    clock = PatientClock()
    bandwidth = Bandwidth(100, clock)
    clock.advance(1000)
    bandwidth.take(300, threading.Event())
    assert sum(clock.slept) == 2.0


def test_without_a_limit_nobody_waits() -> None:
    clock = PatientClock()
    Bandwidth(0, clock).take(10**12, threading.Event())
    assert sum(clock.slept) == 0.0
