"""The same work on many things, a few at a time, until all is done or something cannot be done."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

WORKER_NAME = "storage-"
# How often the caller's thread looks up; Python runs a signal's handler at once, also while it waits.
_TICK_SECONDS = 1.0
# A worker that waits for a server is not waited for; it is a daemon and ends with the process.
_FAREWELL_SECONDS = 1.0


def work_through(
    items: Iterable[Item],
    work: Callable[[Item], None],
    *,
    parallel: int,
    stop: threading.Event,
    tick: Callable[[], None],
) -> None:
    """Call `work` with each item in `parallel` threads; `tick` is called in this one, each second.

    The first exception of a worker is raised here, `stop` is set, and the other workers end with what they do; `work`
    should look at `stop` itself. An exception from outside, such as that of a signal's handler, does the same.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    workers = [
        threading.Thread(target=_worker, args=(waiting, ends, work, stop), name=f"{WORKER_NAME}{number}", daemon=True)
        for number in range(min(parallel, max(1, waiting.qsize())))
    ]
    for worker in workers:
        worker.start()
    try:
        _await(len(workers), ends, tick)
    finally:
        stop.set()
        _join(workers)


def _worker(
    waiting: queue.SimpleQueue[Item],
    ends: queue.SimpleQueue[BaseException | None],
    work: Callable[[Item], None],
    stop: threading.Event,
) -> None:
    try:
        while not stop.is_set():
            work(waiting.get_nowait())
    except queue.Empty:
        ends.put(None)
    except BaseException as error:
        ends.put(error)
    else:
        ends.put(None)


def _await(running: int, ends: queue.SimpleQueue[BaseException | None], tick: Callable[[], None]) -> None:
    while running:
        try:
            error = ends.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            tick()
            continue
        if error is not None:
            raise error
        running -= 1


def _join(workers: Iterable[threading.Thread]) -> None:
    deadline = time.monotonic() + _FAREWELL_SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
