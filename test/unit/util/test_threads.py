"""The rules of util/threads.py."""

import threading

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.util.threads import RESTART_SECONDS, SupervisedThread


class Body:
    """Fails as often as it is told, then returns."""

    def __init__(self, failures: int) -> None:
        self.runs = 0
        self._failures = failures

    def __call__(self) -> None:
        self.runs += 1
        if self.runs <= self._failures:
            raise RuntimeError("a bug")


def test_a_body_that_returns_has_ended() -> None:
    body = Body(failures=0)
    thread = SupervisedThread("t", body, stop=threading.Event(), clock=FakeClock())
    thread.start()
    assert thread.join(60.0)
    assert (body.runs, thread.restarts) == (1, 0)


def test_a_body_that_raises_runs_again_after_a_delay() -> None:
    body, clock = Body(failures=2), FakeClock()
    thread = SupervisedThread("t", body, stop=threading.Event(), clock=clock)
    thread.start()
    for deaths in (1, 2):
        clock.await_waiters(1)
        assert (body.runs, thread.restarts) == (deaths, deaths)
        clock.advance(RESTART_SECONDS)
    assert thread.join(60.0)
    assert body.runs == 3


def test_a_body_that_raises_is_not_run_again_after_stop() -> None:
    body, clock, stop = Body(failures=2), FakeClock(), threading.Event()
    thread = SupervisedThread("t", body, stop=stop, clock=clock)
    thread.start()
    clock.await_waiters(1)
    stop.set()
    assert thread.join(60.0)
    assert body.runs == 1


def test_a_thread_that_does_not_end_in_time_is_reported() -> None:
    stop = threading.Event()
    thread = SupervisedThread("t", stop.wait, stop=stop, clock=FakeClock())
    assert thread.join(0.0), "never started counts as ended"
    thread.start()
    assert not thread.join(0.01)
    stop.set()
    assert eventually(lambda: thread.join(60.0))
