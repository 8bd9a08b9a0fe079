"""Shows the progress of long work: a bar on a terminal, otherwise a line every half minute.

    with Board(report, console) as board:
        task = board.task("programs")
        task.update(1240, 2900, "1,240 of 2,900 packages compiled")

Tasks may be updated by any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from localcluster.report import Report, to_stderr

LINE_SECONDS = 30.0
# Earlier estimates would be too low, since the first packages are small.
_ESTIMATE_AFTER_SECONDS = 5.0


@dataclass(slots=True)
class Task:
    """One piece of work. `total` is 0 as long as the amount of work is unknown."""

    name: str
    clock: Callable[[], float] = time.monotonic
    done: float = 0.0
    total: float = 0.0
    text: str = ""
    _first: float | None = field(default=None)

    def update(self, done: float, total: float, text: str) -> None:
        """Records the progress, with a text that describes it."""
        if done > 0 and self._first is None:
            self._first = self.clock()
        self.done, self.total, self.text = min(done, total), total, text

    @property
    def is_done(self) -> bool:
        """Reports whether everything is done."""
        return 0 < self.total <= self.done

    def seconds_left(self) -> float | None:
        """Returns an estimate from the speed so far; None while there is none."""
        if self._first is None or not self.done or not self.total:
            return None
        elapsed = self.clock() - self._first
        return elapsed * (self.total - self.done) / self.done if elapsed >= _ESTIMATE_AFTER_SECONDS else None

    def line(self) -> str:
        """Returns the progress in one line."""
        percent = f": {100 * self.done / self.total:.0f} %" if self.total else ""
        return f"{self.name}{percent}{f' ({self.text})' if self.text else ''}{self.left()}"

    def left(self) -> str:
        """Returns ", about 4 min left", or nothing while there is no estimate."""
        seconds = self.seconds_left()
        if seconds is None:
            return ""
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {max(seconds, 1):.0f} s left"


class Board:
    """Shows the tasks in progress. `console` is that of a terminal, if there is one."""

    def __init__(self, report: Report, console: Console | None = None, line_seconds: float = LINE_SECONDS) -> None:
        self._report = report
        self._line_seconds = line_seconds
        self._tasks: dict[TaskID, Task] = {}
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="progress", daemon=True)
        own = console or (Console(stderr=True) if report is to_stderr else None)
        self._bars = _bars(own) if own is not None and own.is_terminal else None

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._teller.join()
        if self._bars is not None:
            self._bars.stop()

    def task(self, name: str) -> Task:
        """Returns a new task, which is shown from now on."""
        task = Task(name)
        number = self._bars.add_task(name, total=None) if self._bars is not None else TaskID(len(self._tasks))
        self._tasks[number] = task
        return task

    def _tell(self) -> None:
        while not self._ended.wait(0.25 if self._bars is not None else self._line_seconds):
            for number, task in list(self._tasks.items()):
                if self._bars is not None:
                    shown = f"{task.name}{f': {task.text}' if task.text else ''}{task.left()}"
                    self._bars.update(number, completed=task.done, total=task.total or None, description=shown)
                elif not task.is_done:
                    self._report(f"  {task.line()}")


def _bars(console: Console) -> Progress:
    columns = (BarColumn(12), TaskProgressColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True, refresh_per_second=4)
