"""How far work is, as people read it."""

from __future__ import annotations

import io
import threading

from rich.console import Console

from localcluster.progress import Board, Task


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_estimate_follows_the_pace_so_far() -> None:
    clock = Clock()
    task = Task("building programs", clock)
    task.update(0, 400, "0 of 400")
    clock.now += 20  # nothing was done yet: this time says nothing about the pace
    task.update(1, 400, "1 of 400")
    clock.now += 30
    task.update(100, 400, "100 of 400")
    assert task.seconds_left() == 90
    assert task.line() == "building programs: 25 % (100 of 400), about 2 min left"
    clock.now += 20
    task.update(300, 400, "300 of 400")
    assert task.line() == "building programs: 75 % (300 of 400), about 17 s left"


def test_there_is_no_estimate_before_anything_is_known() -> None:
    clock = Clock()
    task = Task("images", clock)
    assert task.line() == "images"
    task.update(1, 0, "fetching")
    clock.now += 60
    assert task.line() == "images (fetching)"


def test_more_than_everything_is_everything() -> None:
    task = Task("programs")
    task.update(12, 10, "12 of 10")
    assert task.line() == "programs: 100 % (12 of 10)"


def test_without_a_terminal_there_is_a_line_for_each_task_now_and_then() -> None:
    lines: list[str] = []
    both = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            both.set()

    with Board(report, Console(file=io.StringIO()), line_seconds=0.01) as board:
        board.task("programs").update(1, 4, "1 of 4")
        board.task("images")
        board.task("packages").update(4, 4, "4 of 4")
        assert both.wait(60)
    assert {line.strip() for line in lines} <= {"programs: 25 % (1 of 4)", "images", "programs", "packages"}
    assert "  programs: 25 % (1 of 4)" in lines


def test_a_terminal_shows_a_bar_for_each_task() -> None:
    screen = io.StringIO()
    with Board(lambda line: None, Console(file=screen, force_terminal=True, width=100)) as board:
        board.task("programs").update(1, 4, "1 of 4")
        board.task("images")
        shown = threading.Event()
        for _ in range(500):
            if "programs: 1 of 4" in screen.getvalue() and "images" in screen.getvalue():
                shown.set()
                break
            threading.Event().wait(0.02)
    assert shown.is_set()
    assert "25%" in screen.getvalue()
