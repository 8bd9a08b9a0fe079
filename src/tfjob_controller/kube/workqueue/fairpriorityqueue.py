"""A priority queue in which the groups of items, such as namespaces, take turns."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic

from tfjob_controller.kube.workqueue.metrics import ItemT

# A heap is rebuilt once it has twice as many entries as items, and some more, which costs O(1) per entry.
SPARE_ENTRIES = 64


class FairPriorityQueue(Generic[ItemT]):
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

    def __contains__(self, item: ItemT) -> bool:
        return item in self._place

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
