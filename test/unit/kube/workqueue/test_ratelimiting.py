"""The rules of kube/workqueue/ratelimiting.py."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.workqueue.ratelimiting import (
    BucketRateLimiter,
    ItemExponentialRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    default_limiter,
)


def delays(limiter: RateLimiter, count: int, item: str = "a") -> list[float]:
    return [limiter.delay_seconds(item) for _ in range(count)]


class TestItemExponentialRateLimiter:
    def test_the_first_failure_rests_the_base_and_each_further_one_doubles_it_up_to_the_cap(self) -> None:
        assert delays(ItemExponentialRateLimiter(base_seconds=0.5, cap_seconds=3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]

    def test_failures_of_one_item_are_nothing_to_another(self) -> None:
        limiter = ItemExponentialRateLimiter(base_seconds=1.0)
        delays(limiter, 3, "a")
        assert delays(limiter, 1, "b") == [1.0]
        assert (limiter.failures("a"), limiter.failures("b")) == (3, 1)

    def test_a_forgotten_item_starts_over(self) -> None:
        limiter = ItemExponentialRateLimiter(base_seconds=1.0)
        delays(limiter, 3)
        limiter.forget("a")
        assert limiter.failures("a") == 0
        assert delays(limiter, 1) == [1.0]

    def test_asking_for_failures_counts_none(self) -> None:
        limiter = ItemExponentialRateLimiter(base_seconds=1.0)
        assert limiter.failures("a") == 0
        assert delays(limiter, 1) == [1.0]

    @given(failures=st.integers(min_value=0, max_value=3000), base=st.floats(1e-9, 1e6), cap=st.floats(1e-9, 1e9))
    def test_the_delay_never_passes_the_cap_nor_falls(self, failures: int, base: float, cap: float) -> None:
        answers = delays(ItemExponentialRateLimiter(base, cap), failures + 1)
        assert max(answers) <= cap
        assert answers == sorted(answers)


class TestBucketRateLimiter:
    def test_it_keeps_no_items(self) -> None:
        limiter = BucketRateLimiter(1.0, 1, FakeClock())
        assert delays(limiter, 2) == [0.0, 1.0]
        limiter.forget("a")
        assert limiter.failures("a") == 0
        assert delays(limiter, 1) == [2.0]


class TestMaxOfRateLimiter:
    def test_the_longest_rest_counts_and_every_limiter_counts_the_failure(self) -> None:
        quick, slow = ItemExponentialRateLimiter(base_seconds=1.0), ItemExponentialRateLimiter(base_seconds=3.0)
        assert delays(MaxOfRateLimiter(quick, slow), 2) == [3.0, 6.0]
        assert (quick.failures("a"), slow.failures("a")) == (2, 2)

    def test_forgetting_reaches_every_limiter(self) -> None:
        first, second = ItemExponentialRateLimiter(), ItemExponentialRateLimiter()
        limiter = MaxOfRateLimiter(first, second)
        delays(limiter, 2)
        limiter.forget("a")
        assert (first.failures("a"), second.failures("a"), limiter.failures("a")) == (0, 0, 0)

    def test_the_most_failures_count(self) -> None:
        first = ItemExponentialRateLimiter()
        limiter = MaxOfRateLimiter(first, ItemExponentialRateLimiter())
        delays(limiter, 1)
        delays(first, 1)
        assert limiter.failures("a") == 2

    def test_no_limiter_is_no_limit(self) -> None:
        assert MaxOfRateLimiter().delay_seconds("a") == 0.0
        assert MaxOfRateLimiter().failures("a") == 0


def test_the_default_slows_one_item_by_itself_and_a_storm_of_many_together() -> None:
    limiter = default_limiter(FakeClock())
    assert delays(limiter, 3) == [0.005, 0.01, 0.02]
    storm = [limiter.delay_seconds(n) for n in range(200)]
    assert storm[0] == 0.005
    assert storm[-1] == pytest.approx(10.3)  # 203 tokens taken of a bucket of 100 that fills at 10 in a second


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(ItemExponentialRateLimiter, id="item"),
        pytest.param(lambda: BucketRateLimiter(1.0, 1, FakeClock()), id="bucket"),
        pytest.param(lambda: default_limiter(FakeClock()), id="default"),
    ],
)
def test_forgetting_an_unknown_item_is_no_error(build: Callable[[], RateLimiter]) -> None:
    limiter = build()
    limiter.forget("never seen")
    assert limiter.failures("never seen") == 0
