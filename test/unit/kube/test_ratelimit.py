"""The rules of kube/ratelimit.py."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.kube.ratelimit import ItemExponential, RateLimiter, SlowestOf, TokenBucket, default_limiter
from tfjob_controller.util.clock import FakeClock


def delays(limiter: RateLimiter, count: int, item: str = "a") -> list[float]:
    return [limiter.delay_seconds(item) for _ in range(count)]


class TestItemExponential:
    def test_the_first_failure_rests_the_base_and_each_further_one_doubles_it_up_to_the_cap(self) -> None:
        assert delays(ItemExponential(base_seconds=0.5, cap_seconds=3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]

    def test_failures_of_one_item_are_nothing_to_another(self) -> None:
        limiter = ItemExponential(base_seconds=1.0)
        delays(limiter, 3, "a")
        assert delays(limiter, 1, "b") == [1.0]
        assert (limiter.failures("a"), limiter.failures("b")) == (3, 1)

    def test_a_forgotten_item_starts_over(self) -> None:
        limiter = ItemExponential(base_seconds=1.0)
        delays(limiter, 3)
        limiter.forget("a")
        assert limiter.failures("a") == 0
        assert delays(limiter, 1) == [1.0]

    def test_asking_for_failures_counts_none(self) -> None:
        limiter = ItemExponential(base_seconds=1.0)
        assert limiter.failures("a") == 0
        assert delays(limiter, 1) == [1.0]

    @given(failures=st.integers(min_value=0, max_value=3000), base=st.floats(1e-9, 1e6), cap=st.floats(1e-9, 1e9))
    def test_the_delay_never_passes_the_cap_nor_falls(self, failures: int, base: float, cap: float) -> None:
        answers = delays(ItemExponential(base, cap), failures + 1)
        assert max(answers) <= cap
        assert answers == sorted(answers)


class TestTokenBucket:
    def test_the_burst_is_free_and_then_callers_stand_in_line_at_the_rate(self) -> None:
        assert delays(TokenBucket(rate=4.0, burst=2, clock=FakeClock()), 5) == [0.0, 0.0, 0.25, 0.5, 0.75]

    @pytest.mark.parametrize(
        ("rest_seconds", "free"),
        [
            pytest.param(0.0, 0, id="empty"),
            pytest.param(0.4, 0, id="less than a token"),
            pytest.param(1.0, 2, id="two tokens"),
            pytest.param(1e9, 3, id="never more than the burst"),
        ],
    )
    def test_it_fills_at_the_rate(self, rest_seconds: float, free: int) -> None:
        clock = FakeClock()
        bucket = TokenBucket(rate=2.0, burst=3, clock=clock)
        delays(bucket, 3)
        clock.advance(rest_seconds)
        assert delays(bucket, 10).count(0.0) == free

    def test_tokens_that_were_lent_are_paid_back_first(self) -> None:
        clock = FakeClock()
        bucket = TokenBucket(rate=1.0, burst=1, clock=clock)
        assert delays(bucket, 3) == [0.0, 1.0, 2.0]
        clock.advance(2.0)
        assert not bucket.try_take()
        clock.advance(1.0)
        assert bucket.try_take()

    def test_a_refused_try_takes_nothing(self) -> None:
        clock = FakeClock()
        bucket = TokenBucket(rate=1.0, burst=1, clock=clock)
        assert [bucket.try_take() for _ in range(5)] == [True, False, False, False, False]
        clock.advance(1.0)
        assert bucket.try_take()

    def test_a_modest_caller_leaves_tokens_for_others(self) -> None:
        bucket = TokenBucket(rate=1.0, burst=3, clock=FakeClock())
        assert [bucket.try_take(leaving=2) for _ in range(2)] == [True, False]
        assert [bucket.try_take() for _ in range(3)] == [True, True, False]

    def test_it_knows_no_items(self) -> None:
        bucket = TokenBucket(rate=1.0, burst=1, clock=FakeClock())
        delays(bucket, 2)
        bucket.forget("a")
        assert bucket.failures("a") == 0
        assert delays(bucket, 1) == [2.0]

    @pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
    def test_a_bucket_that_could_never_fill_is_refused(self, rate: float, burst: int) -> None:
        with pytest.raises(ValueError, match="a bucket needs"):
            TokenBucket(rate, burst, FakeClock())

    @given(steps=st.lists(st.tuples(st.floats(0.0, 10.0), st.booleans()), max_size=60))
    def test_no_more_than_burst_plus_rate_times_time_ever_pass(self, steps: list[tuple[float, bool]]) -> None:
        clock = FakeClock()
        bucket = TokenBucket(rate=0.5, burst=4, clock=clock)
        passed, elapsed = 0, 0.0
        for rest, attempt in steps:
            clock.advance(rest)
            elapsed += rest
            passed += attempt and bucket.try_take()
            assert passed <= 4 + 0.5 * elapsed + 1e-6


class TestSlowestOf:
    def test_the_longest_rest_counts_and_every_limiter_counts_the_failure(self) -> None:
        quick, slow = ItemExponential(base_seconds=1.0), ItemExponential(base_seconds=3.0)
        assert delays(SlowestOf(quick, slow), 2) == [3.0, 6.0]
        assert (quick.failures("a"), slow.failures("a")) == (2, 2)

    def test_forgetting_reaches_every_limiter(self) -> None:
        first, second = ItemExponential(), ItemExponential()
        limiter = SlowestOf(first, second)
        delays(limiter, 2)
        limiter.forget("a")
        assert (first.failures("a"), second.failures("a"), limiter.failures("a")) == (0, 0, 0)

    def test_the_most_failures_count(self) -> None:
        first = ItemExponential()
        limiter = SlowestOf(first, ItemExponential())
        delays(limiter, 1)
        delays(first, 1)
        assert limiter.failures("a") == 2

    def test_no_limiter_is_no_limit(self) -> None:
        assert SlowestOf().delay_seconds("a") == 0.0
        assert SlowestOf().failures("a") == 0


def test_the_default_slows_one_item_by_itself_and_a_storm_of_many_together() -> None:
    limiter = default_limiter(FakeClock())
    assert delays(limiter, 3) == [0.005, 0.01, 0.02]
    storm = [limiter.delay_seconds(n) for n in range(200)]
    assert storm[0] == 0.005
    assert storm[-1] == pytest.approx(10.3)  # 203 tokens taken of a bucket of 100 that fills at 10 in a second


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(ItemExponential, id="item"),
        pytest.param(lambda: TokenBucket(1.0, 1, FakeClock()), id="bucket"),
        pytest.param(lambda: default_limiter(FakeClock()), id="default"),
    ],
)
def test_forgetting_an_unknown_item_is_no_error(build: Callable[[], RateLimiter]) -> None:
    limiter = build()
    limiter.forget("never seen")
    assert limiter.failures("never seen") == 0
