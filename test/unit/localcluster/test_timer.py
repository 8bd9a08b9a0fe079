"""Tests of localcluster.timer: delayed actions."""

from __future__ import annotations

import threading

from helpers.poll import eventually
from localcluster.timer import Timer


def test_actions_run_in_the_order_of_their_due_times() -> None:
    done: list[str] = []
    timer = Timer("t")
    timer.later(0.3, lambda: done.append("second"))
    timer.later(0.1, lambda: done.append("first"))
    timer.start()
    eventually(lambda: len(done) == 2)
    timer.stop()
    assert done == ["first", "second"]


def test_stop_drops_pending_actions_and_ends_the_thread() -> None:
    done: list[str] = []
    timer = Timer("a-timer-of-its-own")
    timer.start()
    timer.later(60.0, lambda: done.append("late"))
    timer.stop()
    assert not done
    assert "a-timer-of-its-own" not in {thread.name for thread in threading.enumerate()}
