"""A queue of items that need work, each at most once, with priorities, delays and rate limits.

Theory of operation. Watches and timers `add` keys; workers `get` a key, read the whole state behind it, and call
`done`. An item is in the queue or it is not: adding it ten times means processing it once. It is never with two
workers: an item that is added while it is being processed is *dirty* and returns to the queue, once, when that worker
is done. So a worker that reads the state after `get` misses no change and never races with itself.

    add ──► queued ──get──► processing ──done──► (forgotten)
              ▲                 │ add
              └──done── processing and dirty

Ordinary events use `add`, failed syncs `add_rate_limited`, and wake-ups at a known time `add_after`.

Priorities: a higher number goes first. Within one priority the groups of items, such as namespaces, take turns, and
within a group the longest queued goes first; so a group with thousands of items delays others by a turn or two. Adding
a queued item with a higher priority raises it and keeps its time of arrival; a lower priority changes nothing. So live
events overtake the thousands of items of an initial list. No item starves: whenever another item went before the
oldest of all, the oldest is next. An item that arrives when n are queued is therefore among the next 2 (n + 1),
whatever is added meanwhile.

With `most_of_group`, at most this many items of a group are processed at once, so that a group whose items take long
leaves workers to the others. Its further items are held back when it would be their turn; whenever one of the group is
done, the next one of them is queued again.

Threads: any method from any thread. A thread of its own adds items that are due; it starts when it is first needed and
ends in `shut_down`. Items are any hashable values; equal items are the same item.
Source: client-go util/workqueue (queue.go, delaying_queue.go, rate_limiting_queue.go, default_rate_limiters.go),
controller-runtime pkg/controller/priorityqueue.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic

from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.workqueue.fairpriorityqueue import SPARE_ENTRIES, FairPriorityQueue
from tfjob_controller.kube.workqueue.metrics import ItemT, MetricsProvider, QueueMetrics
from tfjob_controller.util.clock import Clock

# How often the gauges of unfinished work are updated; client-go's period.
UNFINISHED_WORK_UPDATE_SECONDS = 0.5
# 2.0**1024 overflows a float. Any base doubled this often is past any cap.
_MAX_DOUBLINGS = 200


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


class RateLimiter:
    """Computes how long an item that failed waits until it is retried. Any method from any thread.

    The delay of an item doubles with each of its failures up to `cap_seconds`, so that an item that always fails
    becomes rare without delaying others; it is kept until it is forgotten. With `buckets`, every failure also takes
    a token of the bucket of its group, so that ten thousand items that fail at once do not come back at once, and delay
    no items of other groups. The longer delay counts.
    """

    def __init__(self, base_seconds: float, cap_seconds: float, buckets: TokenBuckets | None = None) -> None:
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._buckets = buckets
        self._lock = threading.Lock()
        self._failures: dict[Hashable, int] = {}

    def delay_seconds(self, item: Hashable, group: str = "") -> float:
        """Count a failure of `item` and return the seconds until it may be retried."""
        with self._lock:
            before = self._failures.get(item, 0)
            self._failures[item] = before + 1
        delay = min(self._cap_seconds, self._base_seconds * 2.0 ** min(before, _MAX_DOUBLINGS))
        return max(delay, self._buckets.of(group).reserve_seconds()) if self._buckets is not None else delay

    def forget(self, item: Hashable) -> None:
        """Reset the failures of `item`. Unknown items are ignored."""
        with self._lock:
            self._failures.pop(item, None)

    def failures(self, item: Hashable) -> int:
        """The number of failures of `item` since it was last forgotten."""
        with self._lock:
            return self._failures.get(item, 0)


def _one_group(_: object) -> str:
    return ""


class RateLimitingQueue(Generic[ItemT]):
    """See the module's docstring."""

    def __init__(
        self,
        clock: Clock,
        limiter: RateLimiter,
        *,
        name: str = "",
        metrics: MetricsProvider | None = None,
        group_of: Callable[[ItemT], str] = _one_group,
        most_of_group: int | None = None,
    ) -> None:
        """`group_of` returns whose an item is: groups take turns and fail apart. By default all are one group.

        At most `most_of_group` items of a group are processed at a time; None is no limit.
        """
        self._clock = clock
        self._name = name
        self._limiter = limiter
        self._group_of = group_of
        self._metrics: QueueMetrics[ItemT] | None = QueueMetrics(metrics, name, clock) if metrics else None
        self._available = threading.Condition()  # guards metrics and the next four; workers wait on it for an item
        self._queued: FairPriorityQueue[ItemT] = FairPriorityQueue(group_of)
        self._dirty: dict[ItemT, int] = {}  # priorities of items that are queued, or were added while being processed
        self._processing: dict[ItemT, int] = {}  # the priority that each item had in the queue
        self._is_shutting_down = False
        self._most_of_group = most_of_group
        # By group, the number of items that are processed, and those that are held back. Guarded by `_available`.
        self._processing_of: Counter[str] = Counter()
        self._held_back: dict[str, FairPriorityQueue[ItemT]] = {}
        # Guards the delayed items; the thread waits on it for the next one. It is taken before `_available`, never
        # after it.
        self._delayed_changed = threading.Condition()
        self._heap: list[tuple[float, int, ItemT]] = []  # (due, order, item), with leftovers of later times
        self._delayed: dict[ItemT, tuple[float, int]] = {}  # item -> (due on the monotonic scale, priority)
        self._order = itertools.count()
        self._thread: threading.Thread | None = None

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

    def add_after(self, item: ItemT, seconds: float, priority: int = 0) -> None:
        """Add an item after `seconds`; zero or less means now. Ignored after `shut_down`.

        An item that is already delayed is added at the earlier of both times, with the higher of both priorities. A
        plain `add` in the meantime does not cancel the delayed one. Items that are delayed at shut-down are dropped.
        """
        with self._available:
            if self._is_shutting_down:
                return
            if self._metrics:
                self._metrics.retry()
        if seconds <= 0:
            self.add(item, priority)
            return
        with self._delayed_changed:
            if self.is_shutting_down:
                return
            is_next = self._delay(item, self._clock.monotonic() + seconds, priority)
            self._ensure_thread()
            if is_next:
                self._delayed_changed.notify()  # for a later item the thread need not wake yet

    def add_rate_limited(self, item: ItemT, priority: int = 0, *, min_seconds: float = 0.0) -> None:
        """Add a failed item after the delay that the rate limiter computes, but not before `min_seconds`."""
        delay = self._limiter.delay_seconds(item, self._group_of(item))
        self.add_after(item, max(delay, min_seconds), priority)

    def forget(self, item: ItemT) -> None:
        """Reset the item's failures, after its success or because it is not retried. It still has to be `done`.

        An item that is never forgotten stays in memory.
        """
        self._limiter.forget(item)

    def num_requeues(self, item: ItemT) -> int:
        """How often the item failed since it was last forgotten."""
        return self._limiter.failures(item)

    def cancel(self, item: ItemT) -> None:
        """Cancel the delayed add of an item, if there is one. An item that is queued already stays."""
        with self._delayed_changed:
            self._delayed.pop(item, None)
            self._limit_leftovers()

    def get(self) -> ItemT:
        """Wait for the next item. The caller calls `done(item)` after processing it, whatever the outcome.

        Raises ShutDown once the queue is shut down and empty.
        """
        if self._thread is None and self._metrics:
            with self._delayed_changed:
                self._ensure_thread()  # the thread also updates the gauges of unfinished work
        with self._available:
            while (taken := self._take()) is None:
                if self._is_shutting_down and not self._held_back:
                    raise ShutDown
                self._clock.wait(self._available, None)
            (item,) = taken
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
            self._release_next(self._group_of(item))
            if item in self._dirty:
                self._queued.push(item, self._dirty[item])
                self._available.notify()
            if self._is_shutting_down:
                self._available.notify_all()  # those who waited only for what was held back

    def __len__(self) -> int:
        """The number of queued items without delayed ones, for display only: it may have changed already."""
        with self._available:
            return self._count()

    def shut_down(self) -> None:
        """Ignore further adds. Workers process the queued items, then `get` raises ShutDown."""
        with self._available:
            self._is_shutting_down = True
            self._available.notify_all()
        with self._delayed_changed:
            self._delayed.clear()
            self._heap.clear()
            self._delayed_changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_shutting_down(self) -> bool:
        with self._available:
            return self._is_shutting_down

    def statistics(self) -> QueueStatistics:
        with self._delayed_changed, self._available:
            queued, processing = self._count(), len(self._processing)
            dirty = len(self._dirty) - queued
            return QueueStatistics(
                queued, processing, dirty, len(self._delayed), is_shutting_down=self._is_shutting_down
            )

    def _raise_priority(self, item: ItemT, priority: int) -> None:
        if priority <= self._dirty[item]:
            return
        self._dirty[item] = priority
        if item not in self._processing:
            held_back = self._held_back.get(self._group_of(item), self._queued)
            (held_back if item in held_back else self._queued).raise_priority(item, priority)

    def _take(self) -> tuple[ItemT] | None:
        """Take the next item whose group may have one more processed; those before it are held back."""
        while self._queued:
            item = self._queued.pop()
            group = self._group_of(item)
            if self._most_of_group is None or self._processing_of[group] < self._most_of_group:
                self._processing_of[group] += 1
                return (item,)
            self._held_back.setdefault(group, FairPriorityQueue(self._group_of)).push(item, self._dirty[item])
        return None

    def _release_next(self, group: str) -> None:
        """Queue the group's next item that is held back, as one of the group is done."""
        self._processing_of[group] -= 1
        if not self._processing_of[group]:
            del self._processing_of[group]
        held_back = self._held_back.get(group)
        if held_back is None:
            return
        item = held_back.pop()
        if not held_back:
            del self._held_back[group]
        self._queued.push(item, self._dirty[item])
        self._available.notify()

    def _count(self) -> int:
        return len(self._queued) + sum(map(len, self._held_back.values()))

    def _delay(self, item: ItemT, due: float, priority: int) -> bool:
        """Delay an item; returns whether the thread has to wake earlier than planned."""
        known_due, known_priority = self._delayed.get(item, (float("inf"), priority))
        self._delayed[item] = (min(due, known_due), max(priority, known_priority))
        if due >= known_due:
            return False
        is_next = not self._heap or due < self._heap[0][0]
        heapq.heappush(self._heap, (due, next(self._order), item))
        self._limit_leftovers()
        return is_next

    def _limit_leftovers(self) -> None:
        """Rebuild the heap if it has too many invalid entries; items due at the same time keep their order.

        An item with a distant time (a deadline in weeks) that is woken earlier again and again leaves an entry each
        time.
        """
        if len(self._heap) > 2 * len(self._delayed) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[float, int, ItemT]) -> bool:
        due, _, item = entry
        return item in self._delayed and self._delayed[item][0] == due

    def _ensure_thread(self) -> None:
        if self._is_shutting_down or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._run, name=f"queue-{self._name or 'unnamed'}")
        self._thread.start()

    def _run(self) -> None:
        with self._delayed_changed:
            while not self._is_shutting_down:
                self._add_due()
                self._update_unfinished_work()
                self._clock.wait(self._delayed_changed, self._rest_seconds())

    def _add_due(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry):
                _, _, item = entry
                _, priority = self._delayed.pop(item)
                self.add(item, priority)

    def _rest_seconds(self) -> float | None:
        rests = [UNFINISHED_WORK_UPDATE_SECONDS] if self._metrics else []
        if self._heap:
            rests.append(self._heap[0][0] - self._clock.monotonic())
        return min(rests, default=None)

    def _update_unfinished_work(self) -> None:
        with self._available:
            if self._metrics and not self._is_shutting_down:
                self._metrics.update_unfinished_work()
