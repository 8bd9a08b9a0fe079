"""The threads that process the items of a work queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic

from tfjob_controller.kube.workqueue.metrics import ItemT
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue, ShutDown
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread, SupervisedThreads


class QueueWorkers(Generic[ItemT]):
    """`count` threads, named `<name>-<number>`, that call `process` with each item.

    `done` follows whatever `process` does. If it raises, its thread is restarted (util.threads).
    """

    def __init__(
        self,
        name: str,
        queue: RateLimitingQueue[ItemT],
        process: Callable[[ItemT], object],
        *,
        count: int,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._process = process
        self._stopped = threading.Event()
        threads = [
            SupervisedThread(f"{name}-{number}", self._work, stop=self._stopped, clock=clock) for number in range(count)
        ]
        self._threads = SupervisedThreads(threads, clock)

    def __len__(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        self._threads.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Shut the queue down and process no further item; returns False if a thread still runs after the timeout."""
        self._stopped.set()
        self._queue.shut_down()
        return self._threads.join(timeout_seconds)

    def restarts(self) -> dict[str, int]:
        """How often each thread was restarted."""
        return self._threads.restarts()

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get()
            except ShutDown:
                return
            try:
                if not self._stopped.is_set():
                    self._process(item)
            finally:
                self._queue.done(item)
