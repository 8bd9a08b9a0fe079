"""Fair order: among gangs of equal priority, the namespace with the smallest dominant share comes first, then age.

The dominant share of a namespace (Dominant Resource Fairness) is the largest, over all resources, of what the namespace
uses as a share of the allocatable of all nodes, divided by the weight of the namespace. It uses what its bound,
unfinished pods request, with or without a gang, and what is reserved for its gangs (`ClusterView.usage`). The weight is
that of an annotation of the namespace (`weight_in`).

Shares change within a scheduling cycle: each admission adds to one namespace. `in_fair_order` therefore yields one
gang at a time, and evaluates the share of that gang's namespace again before it yields the next (progressive filling).
The cost is O(log n) for each gang, where n is the number of namespaces.

A gang that does not fit leaves its namespace in front, so the other gangs of this namespace come next, in order of age.
A gang which holds nodes (decisions.py) stays in front of its priority until it starts, whatever the shares are
meanwhile. Otherwise a large gang would starve: a flooding namespace whose gangs end would have the smaller share, or
an equal one and older gangs, and would take each node that becomes free. A namespace can so get ahead of its share by
one gang.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Protocol, TypeVar

from tfjob_controller.api.gang import Gang
from tfjob_controller.scheduling.clusterview import ClusterView

DEFAULT_WEIGHT = 1.0
MIN_WEIGHT, MAX_WEIGHT = 0.01, 1000.0
# No longer text is parsed.
_WEIGHT = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,6})?")
_MAX_TEXT = 32


class _Queued(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def gang(self) -> Gang: ...
    @property
    def since(self) -> datetime: ...


_QueuedT = TypeVar("_QueuedT", bound=_Queued)


def equal_weight(namespace: str) -> float:
    """The weight of every namespace without an annotation."""
    return DEFAULT_WEIGHT


class NamespaceShares:
    """The dominant shares of namespaces. `weight_of` returns the weight of a namespace.

    Threads: as the view's, under the same lock.
    """

    def __init__(self, view: ClusterView, weight_of: Callable[[str], float] = equal_weight) -> None:
        self._view = view
        self._weight_of = weight_of

    def share(self, namespace: str) -> float:
        """Returns the weighted dominant share; resources that no node has do not count."""
        total = self._view.allocatable
        shares = (used / total[name] for name, used in self._view.usage(namespace).items() if total.get(name, 0) > 0)
        return max(shares, default=0.0) / self._weight_of(namespace)


def weight_in(text: str) -> float | None:
    """Returns the weight in an annotation: a decimal number from 0.01 to 1000. None if it is invalid."""
    return _weight(text) if len(text) <= _MAX_TEXT else None


@lru_cache(maxsize=1024)
def _weight(text: str) -> float | None:
    weight = float(text) if _WEIGHT.fullmatch(text) else 0.0
    return weight if MIN_WEIGHT <= weight <= MAX_WEIGHT else None


def in_fair_order(
    queue: Sequence[_QueuedT], shares: NamespaceShares, first: Collection[str] = ()
) -> Iterator[_QueuedT]:
    """Yields the gangs of a queue that is ordered by priority and age in fair order, with the shares of the moment.

    The gangs with the keys `first` precede all others of their priority.
    """
    for _, level in groupby(queue, key=lambda each: each.gang.spec.priority):
        waiting: dict[str, list[_QueuedT]] = {}
        gangs_of_level = list(level)
        yield from (gang for gang in gangs_of_level if gang.key in first)
        for gang in gangs_of_level:
            if gang.key in first:
                continue
            waiting.setdefault(namespace_of(gang.key), []).append(gang)
        for gangs in waiting.values():
            gangs.reverse()
        heap = [(shares.share(name), gangs[-1].since, gangs[-1].key, name) for name, gangs in waiting.items()]
        heapq.heapify(heap)
        while heap:
            name = heap[0][3]
            gangs = waiting[name]
            yield gangs.pop()
            # Only this namespace's share can have changed: the caller has admitted this gang, or none.
            if gangs:
                heapq.heapreplace(heap, (shares.share(name), gangs[-1].since, gangs[-1].key, name))
            else:
                heapq.heappop(heap)


def namespace_of(key: str) -> str:
    """Returns the namespace of a gang's or pod's key."""
    return key.partition("/")[0]
