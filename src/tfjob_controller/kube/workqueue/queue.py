"""Which item is worked on next?

Theory of operation. Watches and timers `add` keys; workers `get` a key, look at the whole state behind it, and say
`done`. An item is in the queue or it is not: adding it ten times means looking at it once. It is never given to two
workers at a time: an item that is added while somebody works on it is *dirty* and goes back into the queue, once, when
that worker is done. So a worker that reads the state after `get` cannot miss a change, and never races with itself.

    add ──► queued ──get──► processing ──done──► (gone)
              ▲                 │ add
              └──done── processing and dirty

Three types, each made of the one before it and offering all that it does: `WorkQueue` (the above, with priorities),
`delayingqueue.DelayingQueue` (`add_after`), `ratelimitingqueue.RateLimitingQueue` (`add_rate_limited`).
Ordinary events use `add`; a failed sync uses `add_rate_limited`; a wake-up at a known time uses `add_after`.

Priorities: a higher number goes first; within one priority the longest in the queue goes first. A queued item that is
added with a higher priority is raised to it and keeps its time of arrival; a lower one changes nothing. Live events can
so overtake the thousands of items of an initial list. But no item waits for ever: whenever one has gone before the
oldest of all, the oldest is next. So an item that comes when n are there is given out as one of the next 2 (n + 1),
whatever else is added meanwhile.

Threads: any method from any thread. Items are any hashable values; equal items are the same item.
Source: client-go util/workqueue (queue.go).
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic

from tfjob_controller.kube.workqueue.metrics import ItemT, MetricsProvider, QueueMetrics
from tfjob_controller.util.clock import Clock

# A heap is made anew once it has twice as many entries as items, and some more: that costs each entry O(1). Else an
# item with a far time (a deadline in weeks) that is woken earlier again and again would leave an entry each time.
SPARE_ENTRIES = 64


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
    """Highest priority first, first in first out within one, the oldest now and then. In O(log n); not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ItemT]] = []  # (-priority, arrival, item): two arrivals never equal
        # Which of its heap entries is the item's, others are leftovers. In order of arrival, since a place that changes
        # leaves that as it is; and not a dict, which looks for its first key among all that have gone.
        self._place: OrderedDict[ItemT, tuple[int, int]] = OrderedDict()
        # Every other turn at least is the oldest's: so what is urgent can cost all else no more than half of the turns.
        self._is_oldest_next = False
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._place)

    def push(self, item: ItemT, priority: int) -> None:
        self._put(item, (-priority, next(self._arrivals)))

    def raise_priority(self, item: ItemT, priority: int) -> None:
        """Move an item that is here up; it stays as old as it is."""
        self._put(item, (-priority, self._place[item][1]))

    def pop(self) -> ItemT:
        oldest = next(iter(self._place))
        item = oldest if self._is_oldest_next else self._first()
        self._is_oldest_next = item != oldest
        del self._place[item]
        return item

    def _first(self) -> ItemT:
        while True:
            negative, arrival, item = heapq.heappop(self._heap)
            if self._place.get(item) == (negative, arrival):
                return item

    def _put(self, item: ItemT, place: tuple[int, int]) -> None:
        self._place[item] = place
        heapq.heappush(self._heap, (*place, item))
        if len(self._heap) > 2 * len(self._place) + SPARE_ENTRIES:
            self._heap = [(*place, item) for item, place in self._place.items()]
            heapq.heapify(self._heap)


class WorkQueue(Generic[ItemT]):
    """Items that need work, each at most once, none with two workers."""

    def __init__(self, clock: Clock, *, name: str = "", metrics: MetricsProvider | None = None) -> None:
        self.clock = clock
        self.name = name
        self._metrics: QueueMetrics[ItemT] | None = QueueMetrics(metrics, name, clock) if metrics else None
        self._available = threading.Condition()  # guards everything here; workers wait on it for an item
        self._queued: _PriorityFifo[ItemT] = _PriorityFifo()
        self._dirty: dict[ItemT, int] = {}  # items that need work, with their priority: queued, or added in processing
        self._processing: dict[ItemT, int] = {}  # with the priority that each had in the queue
        self._is_shutting_down = False

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
            self._processing[item] = self._dirty.pop(item)
            return item

    def priority_of(self, item: ItemT) -> int:
        """Of one that is being processed: the priority with which it was given out. Of any other 0."""
        with self._available:
            return self._processing.get(item, 0)

    def done(self, item: ItemT) -> None:
        """The work on an item is finished. If it was added meanwhile, it is queued again, also while shutting down.

        An item that is not being processed is left as it is.
        """
        with self._available:
            if item not in self._processing:
                return
            del self._processing[item]
            if self._metrics:
                self._metrics.done(item)
            if item in self._dirty:
                self._queued.push(item, self._dirty[item])
                self._available.notify()

    def __len__(self) -> int:
        """Items that wait for a worker. Only to be shown: it has changed by the time the caller looks at it."""
        with self._available:
            return len(self._queued)

    def shut_down(self) -> None:
        """Ignore further adds. Workers process the queued items, then `get` raises ShutDown."""
        with self._available:
            self._is_shutting_down = True
            self._available.notify_all()

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
