"""Which item is worked on next?

Theory of operation. Watches and timers `add` keys; workers `get` a key, look at the whole state behind it, and say
`done`. An item is in the queue or it is not: adding it ten times means looking at it once. It is never given to two
workers at a time: an item that is added while somebody works on it is *dirty* and goes back into the queue, once, when
that worker is done. So a worker that reads the state after `get` cannot miss a change, and never races with itself.

    add ──► queued ──get──► processing ──done──► (gone)
              ▲                 │ add
              └──done── processing and dirty

Three types, each made of the one before it and offering all that it does:
`WorkQueue` (the above, with priorities), `DelayingQueue` (`add_after`), `RateLimitingQueue` (`add_rate_limited`).
Ordinary events use `add`; a failed sync uses `add_rate_limited`; a wake-up at a known time uses `add_after`.

Priorities: a higher number goes first; within one priority the longest in the queue goes first. A queued item that is
added with a higher priority is raised to it and keeps its time of arrival; a lower one changes nothing. Live events can
so overtake the thousands of items of an initial list.

Threads: any method from any thread. Only `DelayingQueue` has a thread of its own, which starts when it is first needed
and ends in `shut_down`. Items are any hashable values; equal items are the same item.
Source: client-go util/workqueue (queue.go, delaying_queue.go, rate_limiting_queue.go).
"""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass
from typing import Generic

from tfjob_controller.kube.clock import Clock
from tfjob_controller.kube.queuemetrics import ItemT, MetricsProvider, QueueMetrics
from tfjob_controller.kube.ratelimit import RateLimiter, default_limiter

# How often the gauges of unfinished work are brought up to date; client-go's period.
UNFINISHED_WORK_UPDATE_SECONDS = 0.5
# A heap is made anew once it has twice as many entries as items, and some more: that costs each entry O(1). Else an
# item with a far time (a deadline in weeks) that is woken earlier again and again would leave an entry each time.
_SPARE_ENTRIES = 64


class ShutDown(Exception):  # noqa: N818 -- not an error but the end; the name says what happened
    """The queue is shut down and empty: the worker ends."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot for debugging and tests."""

    queued: int
    processing: int
    dirty_while_processing: int
    delayed: int
    is_shutting_down: bool


class _PriorityFifo(Generic[ItemT]):
    """Highest priority first, first in first out within one. All in O(log n); not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ItemT]] = []  # (-priority, arrival, item): two arrivals never equal
        self._place: dict[ItemT, tuple[int, int]] = {}  # which of its heap entries is the item's; others are leftovers
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._place)

    def push(self, item: ItemT, priority: int) -> None:
        self._put(item, (-priority, next(self._arrivals)))

    def raise_priority(self, item: ItemT, priority: int) -> None:
        """Move an item that is here up; it stays as old as it is."""
        self._put(item, (-priority, self._place[item][1]))

    def pop(self) -> ItemT:
        while True:
            negative, arrival, item = heapq.heappop(self._heap)
            if self._place.get(item) == (negative, arrival):
                del self._place[item]
                return item

    def _put(self, item: ItemT, place: tuple[int, int]) -> None:
        self._place[item] = place
        heapq.heappush(self._heap, (*place, item))
        if len(self._heap) > 2 * len(self._place) + _SPARE_ENTRIES:
            self._heap = [(*place, item) for item, place in self._place.items()]
            heapq.heapify(self._heap)


class WorkQueue(Generic[ItemT]):
    """Items that need work, each at most once, none with two workers."""

    def __init__(self, clock: Clock, *, name: str = "", metrics: MetricsProvider | None = None) -> None:
        self.clock = clock
        self.name = name
        self._metrics: QueueMetrics[ItemT] | None = QueueMetrics(metrics, name, clock) if metrics else None
        lock = threading.Lock()
        self._available = threading.Condition(lock)  # workers wait here for an item
        self._idle = threading.Condition(lock)  # a drain waits here for the last item
        self._queued: _PriorityFifo[ItemT] = _PriorityFifo()
        self._dirty: dict[ItemT, int] = {}  # items that need work, with their priority: queued, or added in processing
        self._processing: set[ItemT] = set()
        self._is_shutting_down = False
        self._is_draining = False

    def add(self, item: ItemT, priority: int = 0) -> None:
        """Mark an item as needing work. Ignored once the queue shuts down."""
        with self._available:
            if self._is_shutting_down:
                return
            if item in self._dirty:
                self._raise_priority(item, priority)
                return
            if self._metrics:
                self._metrics.add(item)
            self._dirty[item] = priority
            if item not in self._processing:
                self._queued.push(item, priority)
                self._available.notify()

    def get(self) -> ItemT:
        """The next item; waits for one. The caller says `done(item)` when it has finished with it, however that went.

        Raises ShutDown when the queue shuts down and nothing is queued any more.
        """
        with self._available:
            while not self._queued and not self._is_shutting_down:
                self.clock.wait(self._available, None)
            if not self._queued:
                raise ShutDown
            item = self._queued.pop()
            if self._metrics:
                self._metrics.get(item)
            self._processing.add(item)
            del self._dirty[item]
            return item

    def done(self, item: ItemT) -> None:
        """The work on an item is finished. If it was added meanwhile, it is queued again, also while shutting down.

        An item that is not being processed is left as it is.
        """
        with self._available:
            if item not in self._processing:
                return
            self._processing.remove(item)
            if self._metrics:
                self._metrics.done(item)
            if item in self._dirty:
                self._queued.push(item, self._dirty[item])
                self._available.notify()
            elif not self._busy():
                self._idle.notify_all()

    def __len__(self) -> int:
        """Items that wait for a worker. Only to be shown: it has changed by the time the caller looks at it."""
        with self._available:
            return len(self._queued)

    def shut_down(self) -> None:
        """Ignore what is added from now on. Workers finish what is queued, then get ShutDown. Ends a drain's wait."""
        with self._available:
            self._begin_shut_down(is_draining=False)

    def shut_down_with_drain(self, timeout_seconds: float | None = None) -> bool:
        """Like `shut_down`, and wait until every item that is queued or in processing is done; False if it was not.

        Without a limit it waits for ever if a worker never says `done`; another thread's `shut_down` ends that.
        """
        with self._available:
            self._begin_shut_down(is_draining=True)
            until = None if timeout_seconds is None else self.clock.monotonic() + timeout_seconds
            while self._busy() and self._is_draining:
                left = None if until is None else until - self.clock.monotonic()
                if left is not None and left <= 0:
                    break
                self.clock.wait(self._idle, left)
            return not self._busy()

    @property
    def is_shutting_down(self) -> bool:
        with self._available:
            return self._is_shutting_down

    def statistics(self) -> QueueStatistics:
        with self._available:
            queued = len(self._queued)
            return QueueStatistics(
                queued, len(self._processing), len(self._dirty) - queued, 0, is_shutting_down=self._is_shutting_down
            )

    @property
    def has_metrics(self) -> bool:
        return self._metrics is not None

    def count_retry(self) -> None:
        """Count one add with a delay."""
        with self._available:
            if self._metrics:
                self._metrics.retry()

    def update_unfinished_work(self) -> None:
        """Bring the gauges of unfinished work up to date; a `DelayingQueue` does this by itself."""
        with self._available:
            if self._metrics and not self._is_shutting_down:
                self._metrics.update_unfinished_work()

    def _raise_priority(self, item: ItemT, priority: int) -> None:
        if priority <= self._dirty[item]:
            return
        self._dirty[item] = priority
        if item not in self._processing:
            self._queued.raise_priority(item, priority)

    def _begin_shut_down(self, *, is_draining: bool) -> None:
        self._is_shutting_down = True
        self._is_draining = is_draining
        self._available.notify_all()
        self._idle.notify_all()

    def _busy(self) -> bool:
        return bool(self._processing) or len(self._queued) > 0


class DelayingQueue(Generic[ItemT]):
    """A work queue whose items can also be added at a later time."""

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
        """Add an item when `seconds` have passed; zero or less means now. Ignored once the queue shuts down.

        An item that already waits is added at the earlier of both times, with the higher of both priorities. Adding it
        otherwise in the meantime leaves this wait as it is. What still waits at shut-down is never added.
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
                self._changed.notify()  # for all others the thread need not wake yet

    def take_back(self, item: ItemT) -> None:
        """Forget that an item waits for its time; what is queued already stays. An unknown item is no error."""
        with self._changed:
            self._waiting.pop(item, None)
            self._limit_leftovers()

    def add(self, item: ItemT, priority: int = 0) -> None:
        self._queue.add(item, priority)

    def get(self) -> ItemT:
        if self._thread is None and self._queue.has_metrics:
            with self._changed:
                self._ensure_thread()  # work begins: somebody has to measure it while it lasts
        return self._queue.get()

    def done(self, item: ItemT) -> None:
        self._queue.done(item)

    def __len__(self) -> int:
        """Items that wait for a worker; those that wait for their time are not counted."""
        return len(self._queue)

    def shut_down(self) -> None:
        self._queue.shut_down()
        self._stop()

    def shut_down_with_drain(self, timeout_seconds: float | None = None) -> bool:
        drained = self._queue.shut_down_with_drain(timeout_seconds)
        self._stop()
        return drained

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
        """Whether the thread has to wake earlier than it means to."""
        known_due, known_priority = self._waiting.get(item, (float("inf"), priority))
        self._waiting[item] = (min(due, known_due), max(priority, known_priority))
        if due >= known_due:
            return False
        is_next = not self._heap or due < self._heap[0][0]
        heapq.heappush(self._heap, (due, next(self._order), item))
        self._limit_leftovers()
        return is_next

    def _limit_leftovers(self) -> None:
        """What comes at the same time still comes in the order in which it was added."""
        if len(self._heap) > 2 * len(self._waiting) + _SPARE_ENTRIES:
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


class RateLimitingQueue(Generic[ItemT]):
    """A delaying queue that asks a limiter how long a failed item rests."""

    def __init__(self, queue: DelayingQueue[ItemT], limiter: RateLimiter) -> None:
        self._queue = queue
        self._limiter = limiter

    def add_rate_limited(self, item: ItemT, priority: int = 0) -> None:
        """Add an item that failed, when the limiter says that it has rested enough."""
        self._queue.add_after(item, self._limiter.delay_seconds(item), priority)

    def forget(self, item: ItemT) -> None:
        """The retries of an item are over, by success or for good. It still has to be `done`.

        An item that is never forgotten is remembered for ever.
        """
        self._limiter.forget(item)

    def num_requeues(self, item: ItemT) -> int:
        """How often an item failed since it was last forgotten."""
        return self._limiter.failures(item)

    def add_after(self, item: ItemT, seconds: float, priority: int = 0) -> None:
        self._queue.add_after(item, seconds, priority)

    def take_back(self, item: ItemT) -> None:
        self._queue.take_back(item)

    def add(self, item: ItemT, priority: int = 0) -> None:
        self._queue.add(item, priority)

    def get(self) -> ItemT:
        return self._queue.get()

    def done(self, item: ItemT) -> None:
        self._queue.done(item)

    def __len__(self) -> int:
        return len(self._queue)

    def shut_down(self) -> None:
        self._queue.shut_down()

    def shut_down_with_drain(self, timeout_seconds: float | None = None) -> bool:
        return self._queue.shut_down_with_drain(timeout_seconds)

    @property
    def is_shutting_down(self) -> bool:
        return self._queue.is_shutting_down

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()


def new_rate_limiting_queue(
    clock: Clock,
    *,
    name: str = "",
    limiter: RateLimiter | None = None,
    metrics: MetricsProvider | None = None,
) -> RateLimitingQueue[ItemT]:
    """A queue for a controller, with client-go's default limits unless others are given."""
    queue: WorkQueue[ItemT] = WorkQueue(clock, name=name, metrics=metrics)
    return RateLimitingQueue(DelayingQueue(queue), limiter or default_limiter(clock))
