"""Tests of localcluster.timer: delayed actions."""

from __future__ import annotations

import threading

from helpers.poll import eventually
from localcluster.timer import Timer


def test_due_actions_run_and_stop_drops_the_others_and_ends_the_thread() -> None:
    done: list[str] = []
    timer = Timer("a-timer-of-its-own")
    timer.later(60.0, lambda: done.append("late"))
    timer.later(0.1, lambda: done.append("due"))
    timer.start()
    eventually(lambda: done)
    timer.stop()
    assert done == ["due"]
    assert "a-timer-of-its-own" not in {thread.name for thread in threading.enumerate()}
