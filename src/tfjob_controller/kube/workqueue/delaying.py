"""A work queue with delayed adds. See `queue.py`.

Threads: any method from any thread. A thread of its own adds items that are due; it starts when it is first needed and
ends in `shut_down`. Source: client-go util/workqueue (delaying_queue.go).
"""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import Generic

from tfjob_controller.kube.workqueue.metrics import ItemT
from tfjob_controller.kube.workqueue.queue import SPARE_ENTRIES, QueueStatistics, WorkQueue

# How often the gauges of unfinished work are updated; client-go's period.
UNFINISHED_WORK_UPDATE_SECONDS = 0.5


class DelayingQueue(Generic[ItemT]):
    """A work queue with delayed adds."""

    def __init__(self, queue: WorkQueue[ItemT]) -> None:
        self._queue = queue
        self._clock = queue.clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, ItemT]] = []  # (due, order, item), with leftovers of later times
        self._waiting: dict[ItemT, tuple[float, int]] = {}  # item -> (due on the monotonic scale, priority)
        self._order = itertools.count()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def add_after(self, item: ItemT, seconds: float, priority: int = 0) -> None:
        """Add an item after `seconds`; zero or less means now. Ignored after `shut_down`.

        An item that is already delayed is added at the earlier of both times, with the higher of both priorities. A
        plain `add` in the meantime does not cancel the delayed one. Items that are delayed at shut-down are dropped.
        """
        if self._queue.is_shutting_down:
            return
        self._queue.count_retry()
        if seconds <= 0:
            self._queue.add(item, priority)
            return
        with self._changed:
            if self._is_stopped:
                return
            is_next = self._wait_for(item, self._clock.monotonic() + seconds, priority)
            self._ensure_thread()
            if is_next:
                self._changed.notify()  # for a later item the thread need not wake yet

    def cancel(self, item: ItemT) -> None:
        """Cancel the delayed add of an item, if there is one. An item that is queued already stays."""
        with self._changed:
            self._waiting.pop(item, None)
            self._limit_leftovers()

    def add(self, item: ItemT, priority: int = 0) -> None:
        self._queue.add(item, priority)

    def get(self) -> ItemT:
        if self._thread is None and self._queue.has_metrics:
            with self._changed:
                self._ensure_thread()  # the thread also updates the gauges of unfinished work
        return self._queue.get()

    def priority_of(self, item: ItemT) -> int:
        return self._queue.priority_of(item)

    def done(self, item: ItemT) -> None:
        self._queue.done(item)

    def __len__(self) -> int:
        """The number of queued items, without delayed ones."""
        return len(self._queue)

    def shut_down(self) -> None:
        self._queue.shut_down()
        self._stop()

    @property
    def is_shutting_down(self) -> bool:
        return self._queue.is_shutting_down

    def statistics(self) -> QueueStatistics:
        inner = self._queue.statistics()
        with self._changed:
            delayed = len(self._waiting)
        return QueueStatistics(
            inner.queued,
            inner.processing,
            inner.dirty_while_processing,
            delayed,
            is_shutting_down=inner.is_shutting_down,
        )

    def _wait_for(self, item: ItemT, due: float, priority: int) -> bool:
        """Delay an item; returns whether the thread has to wake earlier than planned."""
        known_due, known_priority = self._waiting.get(item, (float("inf"), priority))
        self._waiting[item] = (min(due, known_due), max(priority, known_priority))
        if due >= known_due:
            return False
        is_next = not self._heap or due < self._heap[0][0]
        heapq.heappush(self._heap, (due, next(self._order), item))
        self._limit_leftovers()
        return is_next

    def _limit_leftovers(self) -> None:
        """Rebuild the heap if it has too many invalid entries; items due at the same time keep their order."""
        if len(self._heap) > 2 * len(self._waiting) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[float, int, ItemT]) -> bool:
        due, _, item = entry
        return item in self._waiting and self._waiting[item][0] == due

    def _ensure_thread(self) -> None:
        if self._is_stopped or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._run, name=f"queue-{self._queue.name or 'unnamed'}")
        self._thread.start()

    def _run(self) -> None:
        with self._changed:
            while not self._is_stopped:
                self._add_due()
                self._queue.update_unfinished_work()
                self._clock.wait(self._changed, self._rest_seconds())

    def _add_due(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry):
                _, _, item = entry
                _, priority = self._waiting.pop(item)
                self._queue.add(item, priority)

    def _rest_seconds(self) -> float | None:
        rests = [UNFINISHED_WORK_UPDATE_SECONDS] if self._queue.has_metrics else []
        if self._heap:
            rests.append(self._heap[0][0] - self._clock.monotonic())
        return min(rests, default=None)

    def _stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._heap.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
