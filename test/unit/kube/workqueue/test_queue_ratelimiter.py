"""The rules of the rate limiter of kube/workqueue/queue.py."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.workqueue.queue import RateLimiter


def delays(limiter: RateLimiter, count: int, item: str = "a") -> list[float]:
    return [limiter.delay_seconds(item) for _ in range(count)]


def test_the_first_failure_delays_by_the_base_and_each_further_one_doubles_it_up_to_the_cap() -> None:
    assert delays(RateLimiter(base_seconds=0.5, cap_seconds=3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_forgetting_an_unknown_item_is_no_error() -> None:
    limiter = RateLimiter(1.0, 60.0, TokenBuckets(1.0, 1, FakeClock()))
    limiter.forget("never seen")
    assert limiter.failures("never seen") == 0


@given(failures=st.integers(min_value=0, max_value=3000), base=st.floats(1e-9, 1e6), cap=st.floats(1e-9, 1e9))
def test_the_delay_never_passes_the_cap_nor_falls(failures: int, base: float, cap: float) -> None:
    answers = delays(RateLimiter(base, cap), failures + 1)
    assert max(answers) <= cap
    assert answers == sorted(answers)


def test_every_failure_takes_a_token_and_forgetting_an_item_returns_none() -> None:
    limiter = RateLimiter(0.001, 0.001, TokenBuckets(1.0, 1, FakeClock()))
    assert delays(limiter, 2) == [0.001, 1.0]
    limiter.forget("a")
    assert delays(limiter, 1) == [2.0]


def test_the_longer_of_both_delays_counts() -> None:
    limiter = RateLimiter(1.5, 60.0, TokenBuckets(1.0, 1, FakeClock()))
    assert delays(limiter, 3) == [1.5, 3.0, 6.0]
    assert limiter.delay_seconds("b") == 3.0
