"""The rules of util/clock.py."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.util.clock import Clock, RealClock

JOIN_SECONDS = 10.0


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], None]], threading.Thread]]:
    """Start functions in threads of their own, and see that they end."""
    threads: list[threading.Thread] = []

    def start(target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(JOIN_SECONDS)
        assert not thread.is_alive(), "a thread still waits"


Run = Callable[[Callable[[], None]], threading.Thread]


@pytest.mark.parametrize("clock", [pytest.param(RealClock(), id="real"), pytest.param(FakeClock(), id="fake")])
class TestEveryClock:
    def test_a_wait_without_time_left_returns_at_once(self, clock: Clock) -> None:
        condition = threading.Condition()
        with condition:
            clock.wait(condition, 0.0)
            clock.wait(condition, -1.0)

    def test_a_notified_wait_returns(self, clock: Clock, run: Run) -> None:
        condition, ready = threading.Condition(), []

        def wait() -> None:
            with condition:
                while not ready:
                    clock.wait(condition, 3600.0)

        run(wait)
        with condition:
            ready.append(True)
            condition.notify_all()

    def test_a_stopped_sleep_says_so(self, clock: Clock, run: Run) -> None:
        stop, answers = threading.Event(), []
        sleeper = run(lambda: answers.append(clock.sleep(3600.0, stop)))
        stop.set()
        sleeper.join(JOIN_SECONDS)
        assert answers == [True]

    def test_a_sleep_without_time_left_returns_at_once(self, clock: Clock) -> None:
        assert clock.sleep(0.0, threading.Event()) is False

    def test_wall_time_has_a_zone(self, clock: Clock) -> None:
        assert clock.now().tzinfo is UTC


def test_real_time_passes() -> None:
    clock, condition = RealClock(), threading.Condition()
    before = clock.monotonic()
    with condition:
        clock.wait(condition, 0.01)
    assert clock.sleep(0.01, threading.Event()) is False
    assert clock.monotonic() - before >= 0.02


@pytest.mark.parametrize("seconds", [1e10, 1e30, float("inf")])
def test_a_time_beyond_the_longest_possible_wait_is_waited_for(seconds: float) -> None:
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert RealClock().sleep(seconds, stop) is True
    condition = threading.Condition()
    with condition:
        threading.Timer(0.05, notify, [condition]).start()
        RealClock().wait(condition, seconds)


def notify(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()


def test_a_jump_moves_wall_time_alone_and_wakes_nobody(run: Run) -> None:
    clock, stop = FakeClock(), threading.Event()
    start, wall = clock.monotonic(), clock.now()
    run(lambda: clock.sleep(5.0, stop) and None)
    clock.await_waiters(1)
    clock.jump(-3600.0)
    assert (clock.monotonic(), clock.now()) == (start, wall - timedelta(hours=1))
    assert clock.waiters == 1
    clock.advance(5.0)


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_move_wakes_those_whose_time_is_over(run: Run, is_strict: bool) -> None:
    clock, condition = FakeClock(is_strict=is_strict), threading.Condition()
    due = clock.monotonic() + 5.0

    def wait() -> None:
        with condition:
            while (left := due - clock.monotonic()) > 0:
                clock.wait(condition, left)

    run(wait)
    clock.await_waiters(1)
    clock.advance(2.0)
    clock.await_waiters(1)
    clock.advance(3.0)


@pytest.mark.parametrize("timeout_seconds", [None, 5.0])
def test_a_move_of_a_strict_clock_wakes_nobody_whose_time_is_not_over(run: Run, timeout_seconds: float | None) -> None:
    clock, condition, woken = FakeClock(is_strict=True), threading.Condition(), []

    def wait() -> None:
        with condition:
            clock.wait(condition, timeout_seconds)
            woken.append(True)

    waiter = run(wait)
    clock.await_waiters(1)
    clock.advance(4.9)
    waiter.join(0.05)
    assert not woken
    with condition:
        condition.notify_all()


def test_a_move_between_reading_the_time_and_waiting_is_not_slept_through() -> None:
    clock, condition = FakeClock(), threading.Condition()
    waits = 0
    due = clock.monotonic() + 5.0
    with condition:
        while (left := due - clock.monotonic()) > 0:
            clock.advance(5.0)  # as another thread might, just here
            clock.wait(condition, left)  # were it to wait for `left` from now, this test would hang
            waits += 1
    assert waits == 1


def test_a_missed_move_wakes_only_once(run: Run) -> None:
    clock, condition, woken = FakeClock(), threading.Condition(), []

    def wait() -> None:
        clock.monotonic()
        clock.advance(1.0)
        with condition:
            clock.wait(condition, 3600.0)
            woken.append("missed move")
            clock.wait(condition, 1.0)
            woken.append("next move")

    waiter = run(wait)
    clock.await_waiters(1)
    assert woken == ["missed move"]
    clock.advance(1.0)
    waiter.join(JOIN_SECONDS)
    assert woken == ["missed move", "next move"]


def test_waiting_for_waiters_that_never_come_ends() -> None:
    with pytest.raises(TimeoutError, match="0 threads wait"):
        FakeClock().await_waiters(1, timeout_seconds=0.01)
