"""The rules of kube/flowcontrol.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.kube.flowcontrol import FlowControl, Priority, TokenBucket

STOPPED = threading.Event()
STOPPED.set()


def acquire(flow: FlowControl, priority: Priority = Priority.NORMAL) -> float:
    """Without waiting, since the stop is set: the answer is how long it would have waited."""
    return flow.acquire(priority, STOPPED)


def test_a_request_waits_until_its_token_exists() -> None:
    clock = FakeClock()
    flow = FlowControl(10.0, 1, clock)
    stop = threading.Event()
    flow.acquire(Priority.NORMAL, stop)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(flow.acquire, Priority.NORMAL, stop)
        eventually(lambda: clock.waiters == 1)
        clock.advance(0.09)
        assert not waiting.done()
        clock.advance(0.02)
        assert waiting.result(60.0) == pytest.approx(0.1)


def test_a_lease_never_waits_but_its_token_is_counted() -> None:
    flow = FlowControl(10.0, 1, FakeClock())
    for _ in range(5):
        acquire(flow)
    assert acquire(flow, Priority.LEASE) == 0.0
    assert acquire(flow) == pytest.approx(0.6)


@pytest.mark.parametrize("qps", [0.0, -1.0])
def test_without_a_rate_nobody_waits(qps: float) -> None:
    flow = FlowControl(qps, 1, FakeClock())
    assert [acquire(flow) for _ in range(1000)] == [0.0] * 1000


def test_a_burst_below_one_is_one() -> None:
    flow = FlowControl(10.0, 0, FakeClock())
    assert [acquire(flow), acquire(flow)] == pytest.approx([0.0, 0.1])


def reservations(bucket: TokenBucket, count: int) -> list[float]:
    return [bucket.reserve_seconds() for _ in range(count)]


class TestTokenBucket:
    def test_the_burst_is_free_and_then_callers_stand_in_line_at_the_rate(self) -> None:
        assert reservations(TokenBucket(rate=4.0, burst=2, clock=FakeClock()), 5) == [0.0, 0.0, 0.25, 0.5, 0.75]

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
        reservations(bucket, 3)
        clock.advance(rest_seconds)
        assert reservations(bucket, 10).count(0.0) == free

    def test_tokens_that_were_lent_are_paid_back_first(self) -> None:
        clock = FakeClock()
        bucket = TokenBucket(rate=1.0, burst=1, clock=clock)
        assert reservations(bucket, 3) == [0.0, 1.0, 2.0]
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

    @pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
    def test_a_bucket_that_could_never_fill_is_refused(self, rate: float, burst: int) -> None:
        with pytest.raises(ValueError, match="a token bucket needs"):
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
