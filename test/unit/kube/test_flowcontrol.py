"""The rules of kube/flowcontrol.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.poll import eventually
from tfjob_controller.kube.flowcontrol import FlowControl, Priority
from tfjob_controller.util.clock import FakeClock

STOPPED = threading.Event()
STOPPED.set()


def acquire(flow: FlowControl, priority: Priority = Priority.NORMAL) -> float:
    """Without waiting, since the stop is set: the answer is how long it would have waited."""
    return flow.acquire(priority, STOPPED)


def test_the_burst_goes_at_once_then_each_waits_for_its_own_token() -> None:
    flow = FlowControl(10.0, 3, FakeClock())
    assert [acquire(flow) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2])


def test_tokens_come_back_with_time_but_never_more_than_the_burst() -> None:
    clock = FakeClock()
    flow = FlowControl(10.0, 2, clock)
    acquire(flow), acquire(flow)
    clock.advance(3600.0)
    assert [acquire(flow) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.1])


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
