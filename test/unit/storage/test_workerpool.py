"""The rules of crew.py."""

from __future__ import annotations

import threading

import pytest

from helpers.poll import eventually
from tfjob_controller.storage.workerpool import THREAD_PREFIX, process_all


def nothing() -> None:
    """No tick."""


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]


@pytest.mark.parametrize("count", [0, 1, 50])
def test_each_item_is_worked_on_once(count: int) -> None:
    done: list[int] = []
    process_all(range(count), done.append, parallel=4, stop=threading.Event(), tick=nothing)
    assert sorted(done) == list(range(count))
    assert workers() == []


def test_no_more_than_so_many_are_worked_on_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=60.0)
    most: list[int] = []

    def work(item: int) -> None:
        meeting.wait()
        most.append(len(workers()))

    process_all(range(6), work, parallel=3, stop=threading.Event(), tick=nothing)
    assert max(most) == 3


def test_the_first_fault_is_raised_and_stops_the_others() -> None:
    stop = threading.Event()
    done: list[int] = []

    def work(item: int) -> None:
        if item == 0:
            raise ValueError("no")
        stop.wait(60.0)
        done.append(item)

    with pytest.raises(ValueError, match="no"):
        process_all(range(100), work, parallel=3, stop=stop, tick=nothing)
    eventually(lambda: not workers())
    assert len(done) <= 2


def test_what_interrupts_the_caller_stops_the_workers() -> None:
    stop = threading.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process_all([1], lambda item: stop.wait(60.0) and None, parallel=1, stop=stop, tick=interrupt)
    eventually(lambda: not workers())
