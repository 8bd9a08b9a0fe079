"""The rules of util/backoff.py, one test each."""

import random

from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeclock import FakeClock
from tfjob_controller.util.backoff import DecorrelatedBackoff


def backoff(clock: FakeClock, seed: int = 0) -> DecorrelatedBackoff:
    return DecorrelatedBackoff(
        clock, random.Random(seed), base_seconds=1.0, cap_seconds=20.0, reset_after_seconds=100.0
    )


@given(seed=st.integers())
def test_each_delay_lies_between_the_base_and_three_times_the_last_up_to_the_cap(seed: int) -> None:
    delays = backoff(FakeClock(), seed)
    last = 1.0
    for _ in range(50):
        delay = delays.next_seconds()
        assert 1.0 <= delay <= min(20.0, 3 * last)
        last = delay


def test_failures_in_a_row_come_to_long_delays() -> None:
    delays = backoff(FakeClock())
    assert max(delays.next_seconds() for _ in range(50)) > 15.0


def test_two_clients_that_fail_together_do_not_come_back_together() -> None:
    clock = FakeClock()
    first, second = backoff(clock, seed=1), backoff(clock, seed=2)
    both = [(first.next_seconds(), second.next_seconds()) for _ in range(10)]
    assert all(abs(one - other) > 0.001 for one, other in both if max(one, other) < 20.0)


def test_a_healthy_period_starts_over() -> None:
    clock = FakeClock()
    delays = backoff(clock)
    rest = [delays.next_seconds() for _ in range(20)][-1]
    clock.advance(rest + 100.0)
    assert delays.next_seconds() <= 3.0


def test_the_delay_itself_is_not_a_healthy_period() -> None:
    clock = FakeClock()
    delays = DecorrelatedBackoff(
        clock, random.Random(0), base_seconds=1.0, cap_seconds=500.0, reset_after_seconds=100.0
    )
    longest = 0.0
    for _ in range(50):
        delay = delays.next_seconds()
        longest = max(longest, delay)
        clock.advance(delay)
    assert longest > 300.0


def test_a_delay_that_the_server_requests_is_respected() -> None:
    assert backoff(FakeClock()).next_seconds(at_least=60.0) == 60.0


def test_what_a_server_asks_for_does_not_stretch_later_delays() -> None:
    clock = FakeClock()
    delays = backoff(clock)
    delays.next_seconds(at_least=60.0)
    assert delays.next_seconds() <= 9.0
