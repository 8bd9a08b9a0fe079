"""Processes many items in a pool of threads, until all are done or one fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

THREAD_PREFIX = "storage-"
# The interval of `tick`. Python runs the handler of a signal at once, also while the caller's thread waits.
_TICK_SECONDS = 1.0
# A worker that is blocked by a server is left behind: it is a daemon and ends with the process.
_JOIN_SECONDS = 1.0


def process_all(
    items: Iterable[Item],
    work: Callable[[Item], None],
    *,
    parallel: int,
    stop: threading.Event,
    tick: Callable[[], None],
) -> None:
    """Calls `work` with each item in `parallel` threads, and `tick` once a second in the calling thread.

    If a worker raises an exception, `stop` is set and the exception is raised here; the other workers stop after their
    current item, or earlier if `work` checks `stop`. An exception in the calling thread, such as one from a signal
    handler, has the same effect.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    workers = [
        threading.Thread(target=_worker, args=(waiting, ends, work, stop), name=f"{THREAD_PREFIX}{number}", daemon=True)
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
    deadline = time.monotonic() + _JOIN_SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
