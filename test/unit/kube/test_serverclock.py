"""A program with a wrong clock works with the API server's time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.serverclock import DISAGREEMENT_SECONDS, ServerClock


@pytest.mark.parametrize(("ahead_seconds", "is_corrected"), [(120, True), (-3600, True), (5, False), (-5, False)])
def test_a_wrong_clock_is_corrected_and_a_good_one_is_kept(ahead_seconds: int, is_corrected: bool) -> None:
    own = FakeClock()
    server = own.now() - timedelta(seconds=ahead_seconds)
    assert ServerClock(own, lambda: server).now() == (server if is_corrected else own.now())


def test_without_a_response_the_time_is_that_of_the_machine() -> None:
    own = FakeClock()
    assert ServerClock(own, lambda: None).now() == own.now()


def test_a_step_of_the_machines_clock_has_no_effect() -> None:
    own = FakeClock()
    server = own.now()
    clock = ServerClock(own, lambda: server)
    first = clock.now()
    own.jump(3600)
    assert clock.now() == first
    own.advance(3)
    assert clock.now() == first + timedelta(seconds=3)


def test_of_several_servers_with_several_times_one_is_followed() -> None:
    own = FakeClock()
    begin = own.now()
    offsets = [timedelta(), timedelta(seconds=7)] * 40
    clock = ServerClock(own, lambda: own.now() + offset)
    for number, offset in enumerate(offsets):  # noqa: B007 -- the clock reads it
        assert clock.now() == begin + timedelta(seconds=number)
        own.advance(1)


def test_a_time_that_the_server_keeps_to_is_taken() -> None:
    own = FakeClock()
    change = timedelta()
    clock = ServerClock(own, lambda: own.now() + change)
    assert clock.now() == own.now()
    change = timedelta(hours=1)
    assert clock.now() == own.now()
    own.advance(DISAGREEMENT_SECONDS + 1)
    assert clock.now() == own.now() + change
