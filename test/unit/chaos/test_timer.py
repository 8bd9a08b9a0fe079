"""Things that are done later."""

from __future__ import annotations

import threading

from chaos.timer import Timer
from helpers.poll import eventually


def test_what_is_due_first_is_done_first() -> None:
    done: list[str] = []
    timer = Timer("t")
    timer.later(0.3, lambda: done.append("second"))
    timer.later(0.1, lambda: done.append("first"))
    timer.start()
    eventually(lambda: len(done) == 2)
    timer.stop()
    assert done == ["first", "second"]


def test_nothing_is_done_and_no_thread_is_left_after_the_end() -> None:
    done: list[str] = []
    timer = Timer("a-timer-of-its-own")
    timer.start()
    timer.later(60.0, lambda: done.append("late"))
    timer.stop()
    assert not done
    assert "a-timer-of-its-own" not in {thread.name for thread in threading.enumerate()}
