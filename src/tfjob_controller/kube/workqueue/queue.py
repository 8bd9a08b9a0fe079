"""A queue of items that need work, each at most once, with priorities.

Theory of operation. Watches and timers `add` keys; workers `get` a key, read the whole state behind it, and call
`done`. An item is in the queue or it is not: adding it ten times means processing it once. It is never with two
workers: an item that is added while it is being processed is *dirty* and returns to the queue, once, when that worker
is done. So a worker that reads the state after `get` misses no change and never races with itself.

    add ──► queued ──get──► processing ──done──► (forgotten)
              ▲                 │ add
              └──done── processing and dirty

Three types, each built on the previous one: `WorkQueue` (the above, with priorities), `delaying.DelayingQueue`
(`add_after`), `ratelimiting.RateLimitingQueue` (`add_rate_limited`). Ordinary events use `add`, failed syncs
`add_rate_limited`, and wake-ups at a known time `add_after`.

Priorities: a higher number goes first. Within one priority the groups of items, such as namespaces, take turns, and
within a group the longest queued goes first; so a group with thousands of items delays others by a turn or two. Adding
a queued item with a higher priority raises it and keeps its time of arrival; a lower priority changes nothing. So live
events overtake the thousands of items of an initial list. No item starves: whenever another item went before the
oldest of all, the oldest is next. An item that arrives when n are queued is therefore among the next 2 (n + 1),
whatever is added meanwhile.

Threads: any method from any thread. Items are any hashable values; equal items are the same item.
Source: client-go util/workqueue (queue.go); controller-runtime priorityqueue.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from tfjob_controller.kube.workqueue.metrics import ItemT, MetricsProvider, QueueMetrics
from tfjob_controller.util.clock import Clock

# A heap is rebuilt once it has twice as many entries as items, and some more, which costs O(1) per entry. Otherwise an
# item with a distant time (a deadline in weeks) that is woken earlier again and again would leave an entry each time.
SPARE_ENTRIES = 64


class ShutDown(Exception):  # noqa: N818 -- not an error but the end; a regular end of work
    """The queue is shut down and empty, so the worker ends."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot for debugging and tests."""

    queued: int
    processing: int
    dirty_while_processing: int
    delayed: int
    is_shutting_down: bool


def _one_group(_: object) -> str:
    return ""


class _FairPriorityQueue(Generic[ItemT]):
    """Highest priority first, then the groups in turn, each by arrival; the oldest item at least every other turn.

    O(log n) per item, for a few priorities. Not thread-safe.
    """

    def __init__(self, group_of: Callable[[ItemT], str]) -> None:
        self._group_of = group_of
        # By priority, the groups in the order of their turns, each a heap of arrivals and items.
        self._groups: dict[int, OrderedDict[str, list[tuple[int, ItemT]]]] = {}
        # The priority and arrival of each item; all other entries of heaps are leftovers. Ordered by arrival, which a
        # raised priority keeps. Not a dict, which searches for its first key among all deleted ones.
        self._place: OrderedDict[ItemT, tuple[int, int]] = OrderedDict()
        self._entries = 0
        # Urgent items take at most every other turn from the oldest one.
        self._is_oldest_next = False
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._place)

    def push(self, item: ItemT, priority: int) -> None:
        self._put(item, priority, next(self._arrivals))

    def raise_priority(self, item: ItemT, priority: int) -> None:
        """Raise a queued item, which keeps its arrival."""
        self._put(item, priority, self._place[item][1])

    def pop(self) -> ItemT:
        oldest = next(iter(self._place))
        item = oldest if self._is_oldest_next else self._first()
        self._is_oldest_next = item != oldest
        del self._place[item]
        return item

    def _first(self) -> ItemT:
        while True:
            priority = max(self._groups)
            groups = self._groups[priority]
            group, heap = next(iter(groups.items()))
            arrival, item = heapq.heappop(heap)
            self._entries -= 1
            is_valid = self._place.get(item) == (priority, arrival)
            if not heap:
                del groups[group]
            elif is_valid:
                groups.move_to_end(group)
            if not groups:
                del self._groups[priority]
            if is_valid:
                return item

    def _put(self, item: ItemT, priority: int, arrival: int) -> None:
        self._place[item] = (priority, arrival)
        self._insert(item, priority, arrival)
        if self._entries > 2 * len(self._place) + SPARE_ENTRIES:
            self._drop_leftovers()

    def _insert(self, item: ItemT, priority: int, arrival: int) -> None:
        groups = self._groups.setdefault(priority, OrderedDict())
        heapq.heappush(groups.setdefault(self._group_of(item), []), (arrival, item))
        self._entries += 1

    def _drop_leftovers(self) -> None:
        for groups in self._groups.values():
            for heap in groups.values():
                heap.clear()
        self._entries = 0
        for item, (priority, arrival) in self._place.items():
            self._insert(item, priority, arrival)
        for priority, groups in list(self._groups.items()):
            self._groups[priority] = OrderedDict((group, heap) for group, heap in groups.items() if heap)
            if not self._groups[priority]:
                del self._groups[priority]


class WorkQueue(Generic[ItemT]):
    """Items that need work, each at most once, and none with two workers."""

    def __init__(
        self,
        clock: Clock,
        *,
        name: str = "",
        metrics: MetricsProvider | None = None,
        group_of: Callable[[ItemT], str] = _one_group,
    ) -> None:
        """`group_of` returns whose an item is: groups take turns. By default all items are one group."""
        self.clock = clock
        self.name = name
        self._metrics: QueueMetrics[ItemT] | None = QueueMetrics(metrics, name, clock) if metrics else None
        self._available = threading.Condition()  # guards everything here; workers wait on it for an item
        self._queued: _FairPriorityQueue[ItemT] = _FairPriorityQueue(group_of)
        self._dirty: dict[ItemT, int] = {}  # priorities of items that are queued, or were added while being processed
        self._processing: dict[ItemT, int] = {}  # the priority that each item had in the queue
        self._is_shutting_down = False

    def add(self, item: ItemT, priority: int = 0) -> None:
        """Mark an item as needing work. Ignored after `shut_down`."""
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
        """Wait for the next item. The caller calls `done(item)` after processing it, whatever the outcome.

        Raises ShutDown once the queue is shut down and empty.
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
        """The priority with which an item that is being processed left the queue; 0 for any other item."""
        with self._available:
            return self._processing.get(item, 0)

    def done(self, item: ItemT) -> None:
        """End the processing of an item. If it was added meanwhile, it is queued again, even during shut-down.

        Ignored for an item that is not being processed.
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
        """The number of queued items, for display only: it may have changed already."""
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
        """Update the gauges of unfinished work; a `DelayingQueue` does this periodically."""
        with self._available:
            if self._metrics and not self._is_shutting_down:
                self._metrics.update_unfinished_work()

    def _raise_priority(self, item: ItemT, priority: int) -> None:
        if priority <= self._dirty[item]:
            return
        self._dirty[item] = priority
        if item not in self._processing:
            self._queued.raise_priority(item, priority)
