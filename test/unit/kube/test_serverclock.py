"""A program with a wrong clock works with the API server's time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.serverclock import ServerClock


@pytest.mark.parametrize(("ahead_seconds", "is_corrected"), [(120, True), (-3600, True), (5, False), (-5, False)])
def test_a_wrong_clock_is_corrected_and_a_good_one_is_kept(ahead_seconds: int, is_corrected: bool) -> None:
    own = FakeClock()
    server = own.now() - timedelta(seconds=ahead_seconds)
    assert ServerClock(own, lambda: server).now() == (server if is_corrected else own.now())


def test_without_a_response_the_time_is_that_of_the_machine() -> None:
    own = FakeClock()
    assert ServerClock(own, lambda: None).now() == own.now()


def test_a_corrected_time_does_not_follow_each_response() -> None:
    own, late = FakeClock(), timedelta(seconds=120)
    clock = ServerClock(own, lambda: server)
    server: datetime | None = own.now() - late
    first = clock.now()
    server = own.now() - late - timedelta(seconds=2)
    assert clock.now() == first
    server = None
    assert clock.now() == first
    own.advance(10)
    assert clock.now() == first + timedelta(seconds=10)
    server = own.now()
    assert clock.now() == own.now(), "it was set right"
