"""Helper processes of attackers of several kinds.

They are processes so that none waits for the interpreter lock of another one. They end with the process that started
them, even if that is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import urllib3

from localcluster.api import RefusedError

_JOIN_SECONDS, _STEP_SECONDS = 60.0, 10.0
_NICENESS = 10
_AUTOGROUP = Path("/proc/self/autogroup")


class Attackers:
    """Attacks of several kinds in this process, each in a thread: steps, which yield the pause after each.

    With `rests`, the pause is as long as the step took if that is longer.
    """

    def __init__(self, over: Event, *, rests: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._over, self._rests = over, rests

    def run(self, kinds: Sequence[Iterator[float]], results: Connection) -> None:
        """Attacks until `over`; then sends the number of steps of each kind."""
        with contextlib.suppress(KeyboardInterrupt):
            threads = [threading.Thread(target=self._keep, args=(steps,), daemon=True) for steps in kinds]
            for thread in threads:
                thread.start()
            self._over.wait()
            # `over.set` waits for all that wait for it, and would wait for ever for a thread that ends with this.
            for thread in threads:
                thread.join(_STEP_SECONDS)
        results.send(dict(self.counts))

    @contextlib.contextmanager
    def counted(self, kind: str) -> Iterator[None]:
        """Counts the block: as accepted, by the status with which it was refused, or as unanswered."""
        try:
            yield
            self.counts[kind] += 1
        except RefusedError as error:
            self.counts[f"{kind}_{error.status}"] += 1
        except (urllib3.exceptions.HTTPError, OSError):
            self.counts[f"{kind}_unanswered"] += 1

    def _keep(self, steps: Iterator[float]) -> None:
        begin = time.monotonic()
        for seconds in steps:
            if self._over.wait(max(seconds, time.monotonic() - begin) if self._rests else seconds):
                return
            begin = time.monotonic()


class Helpers:
    """Helper processes, each with a pipe for its figures."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.over = self._context.Event()
        self._started: dict[str, tuple[multiprocessing.process.BaseProcess, Connection]] = {}

    def event(self) -> Event:
        """Returns an event that can be given to a helper."""
        return self._context.Event()

    def start(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        helper = self._context.Process(target=_run, args=(run, *arguments, self.over, theirs), name=name, daemon=True)
        helper.start()
        theirs.close()
        self._started[name] = (helper, ours)

    def end(self) -> dict[str, dict[str, Any]]:
        """Ends the processes and returns the figures that each has sent; none of one that ended earlier."""
        self.over.set()
        figures: dict[str, dict[str, Any]] = {}
        for name, (helper, pipe) in self._started.items():
            figures[name] = {}
            with contextlib.suppress(EOFError):
                if pipe.poll(_JOIN_SECONDS):
                    figures[name] = pipe.recv()
            helper.join(1.0)
            helper.kill()
        self._started.clear()
        return figures


def _run(run: Callable[..., None], *arguments: object) -> None:
    """Runs in the helper process."""
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
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
