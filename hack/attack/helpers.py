"""Helper processes: attackers, and a client that measures.

They are processes so that none waits for the interpreter lock of another one. They end with the process that started
them, even if that is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

_JOIN_SECONDS = 60.0
_NICENESS = 10
_AUTOGROUP = Path("/proc/self/autogroup")


class Helpers:
    """Helper processes, each with a pipe for its figures."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.over = self._context.Event()
        self._started: dict[str, tuple[multiprocessing.process.BaseProcess, Connection]] = {}

    def event(self) -> Event:
        """Returns an event that can be given to a helper."""
        return self._context.Event()

    def start(self, name: str, run: Callable[..., None], *arguments: object, is_nice: bool = True) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        helper = self._context.Process(
            target=_run, args=(run, is_nice, *arguments, self.over, theirs), name=name, daemon=True
        )
        helper.start()
        theirs.close()
        self._started[name] = (helper, ours)

    def end(self) -> dict[str, dict[str, Any]]:
        """Ends the processes and returns the figures that each has sent; none of one that ended earlier."""
        self.over.set()
        found: dict[str, dict[str, Any]] = {}
        for name, (helper, pipe) in self._started.items():
            found[name] = {}
            with contextlib.suppress(EOFError):
                if pipe.poll(_JOIN_SECONDS):
                    found[name] = pipe.recv()
            helper.join(1.0)
            helper.kill()
        self._started.clear()
        return found


def _run(run: Callable[..., None], is_nice: bool, *arguments: object) -> None:
    """Runs in the helper process."""
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    if is_nice:
        _lower_priority()
    run(*arguments)


def _lower_priority() -> None:
    """Gives this process a low priority on the CPUs: real attackers run on other machines.

    A kernel that schedules by autogroups (sched(7)) compares niceness only within a session, and sessions by the
    niceness of their groups.
    """
    os.setsid()
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        _AUTOGROUP.write_text(str(_NICENESS))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def running_helpers() -> Iterator[Helpers]:
    """Yields helpers, which end with the block."""
    helpers = Helpers()
    try:
        yield helpers
    finally:
        helpers.end()
