"""The series of Events that wait to be written, by namespace.

Namespaces take turns: however many series one has, the others wait for one of its requests per turn. No I/O and no
lock, since one thread calls it. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field

from tfjob_controller.kube.events.series import Series


@dataclass(slots=True)
class _NamespaceWrites:
    """What one namespace has to write; never empty."""

    # The time from which each series may be written, and the order of those of one time.
    heap: list[tuple[float, int, Series]] = field(default_factory=list)
    hold_until: float = 0.0

    @property
    def next_due(self) -> float:
        return max(self.heap[0][0], self.hold_until)


class PendingWrites:
    """Each series once, with the time from which it may be written."""

    def __init__(self) -> None:
        # In the order of their turns.
        self._namespaces: OrderedDict[str, _NamespaceWrites] = OrderedDict()
        self._count = 0
        self._order = itertools.count()
        self._hold_until = 0.0

    def __len__(self) -> int:
        return self._count

    def push(self, series: Series, due: float) -> None:
        """Adds a series; one that is pending keeps its time."""
        if not series.is_pending:
            series.is_pending = True
            writes = self._namespaces.setdefault(series.namespace, _NamespaceWrites())
            heapq.heappush(writes.heap, (due, next(self._order), series))
            self._count += 1

    def pop(self, now: float) -> Series | None:
        """Removes and returns a series that may be written now, of the namespace whose turn it is."""
        if now < self._hold_until:
            return None
        for namespace, writes in self._namespaces.items():
            if writes.next_due <= now:
                series = heapq.heappop(writes.heap)[2]
                self._namespaces.move_to_end(namespace)
                self._forget_popped(series)
                return series
        return None

    def pop_of_largest(self) -> Series:
        """Removes and returns a series of the namespace that has the most; its next one only if it is the only one.

        Holds do not count. There must be a pending series.
        """
        largest = max(self._namespaces.values(), key=lambda writes: len(writes.heap))
        series = largest.heap.pop()[2]
        self._forget_popped(series)
        return series

    def next_due(self) -> float | None:
        """When the next series may be written; None without any."""
        return min((max(writes.next_due, self._hold_until) for writes in self._namespaces.values()), default=None)

    def expedite(self, series: Series, now: float) -> None:
        """Makes a pending series due now. A hold of its namespace still applies."""
        writes = self._namespaces[series.namespace]
        writes.heap = [(now if other is series else due, order, other) for due, order, other in writes.heap]
        heapq.heapify(writes.heap)

    def expedite_all(self, now: float) -> None:
        """Makes all pending series due now, in the order in which they were due before."""
        for writes in self._namespaces.values():
            writes.heap = [(now, next(self._order), series) for _, _, series in sorted(writes.heap)]

    def hold(self, namespace: str, until: float) -> None:
        """Keeps back a namespace, which has pending series, until this time or until its last one is removed."""
        self._namespaces[namespace].hold_until = until

    def hold_all(self, until: float) -> None:
        """Keeps back all series until this time, those too that are added meanwhile."""
        self._hold_until = until

    def _forget_popped(self, series: Series) -> None:
        series.is_pending = False
        self._count -= 1
        if not self._namespaces[series.namespace].heap:
            del self._namespaces[series.namespace]
