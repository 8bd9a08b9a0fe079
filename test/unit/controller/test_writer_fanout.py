"""The rules of controller/writer.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import structlog

from tfjob_controller.controller.writer import Fanout


@pytest.fixture(params=[0, 1, 8])
def fanout(request: pytest.FixtureRequest) -> Iterator[Fanout]:
    made = Fanout(request.param)
    yield made
    made.stop()


def test_every_task_runs_once(fanout: Fanout) -> None:
    ran: list[int] = []
    fanout.run([lambda number=number: ran.append(number) for number in range(100)])  # type: ignore[misc]  # a default
    assert sorted(ran) == list(range(100))


def test_no_task_is_no_work(fanout: Fanout) -> None:
    fanout.run([])


def test_one_task_runs_in_the_calling_thread(fanout: Fanout) -> None:
    threads: list[str] = []
    fanout.run([lambda: threads.append(threading.current_thread().name)])
    assert threads == [threading.current_thread().name]


def test_tasks_run_at_the_same_time_within_the_bound() -> None:
    fanout = Fanout(3)
    together = threading.Barrier(4, timeout=10)
    fanout.run([together.wait] * 4)  # type: ignore[list-item]  # its answer is ignored
    fanout.stop()


def test_a_run_moves_on_while_others_hold_the_whole_pool() -> None:
    fanout = Fanout(1)
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        may_end.wait(10)

    other = threading.Thread(target=fanout.run, args=([hold, hold],))
    other.start()
    assert held.wait(10)
    ran: list[int] = []
    fanout.run([lambda: ran.append(1), lambda: ran.append(2)])
    assert ran == [1, 2]
    may_end.set()
    other.join(10)
    fanout.stop()


def test_what_a_task_raises_comes_out_when_all_have_ended(fanout: Fanout) -> None:
    def fails() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        fanout.run([fails])


def test_helpers_know_the_callers_reconcile_id() -> None:
    fanout = Fanout(4)
    together = threading.Barrier(3, timeout=10)
    seen: list[object] = []

    def look() -> None:
        together.wait()
        seen.append(structlog.contextvars.get_contextvars()["reconcile_id"])

    with structlog.contextvars.bound_contextvars(reconcile_id="r1"):
        fanout.run([look] * 3)
    assert seen == ["r1"] * 3
    fanout.stop()


def test_after_stop_the_caller_does_all_by_itself() -> None:
    fanout = Fanout(4)
    fanout.stop()
    ran: list[int] = []
    fanout.run([lambda: ran.append(1), lambda: ran.append(2)])
    assert ran == [1, 2]


def test_a_stop_in_the_middle_of_a_run_loses_no_task() -> None:
    for _ in range(50):
        fanout, together, ran = Fanout(64), threading.Barrier(2, timeout=10), list[int]()

        def stop(fanout: Fanout = fanout, together: threading.Barrier = together) -> None:
            together.wait()
            fanout.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        together.wait()
        fanout.run([lambda ran=ran: ran.append(1)] * 65)  # type: ignore[misc]  # a default
        stopper.join(10)
        assert len(ran) == 65
