"""Packs a few kinds of pods onto nodes, all or nothing, on few nodes.

Theory of operation. Nodes with equal free capacity that accept the same pods form one `NodeGroup`. Three ways are
tried:

1. one node for all pods: the one that is left with the least;
2. greedy: repeatedly the node that takes most of the remaining pods, and as the last one the node that is then left
   with the least. A node is filled with an equal share of every kind, rounded up, so that the first of few pods
   (parameter servers, a chief) run on the node with the most workers; what is still free is filled with whatever fits,
   the scarcest kind first. Groups wait in a heap under what they took when they were last evaluated, which is never
   less than what they take now, so that only a few are evaluated again;
3. a search with backtracking, where there are several kinds of pods (for one kind, greedy is exact: it needs the fewest
   nodes). It is complete as long as its budget lasts, which is enough for small clusters and gangs; beyond that, a gang
   that would only just fit may be rejected.

Everything is decided by numbers and then names, so equal input gives equal output.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfjob_controller.api.common.podrequests import Amounts
from tfjob_controller.scheduling.podsets import PodSet, total_requests

# How many fills the search tries: a tenth of a second in all, and plenty for a small cluster.
_SEARCH_BUDGET = 20_000
# How many nodes it uses, those that could take most: each adds a level of recursion.
_SEARCHED_NODES = 200

# How many pods of each pod set, in the order of the pod sets.
Counts: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes: `accepts` has for each pod set whether they accept it. Names are sorted."""

    accepts: tuple[bool, ...]
    free: Amounts
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PackingStep:
    """The number of pods of each kind that one node takes."""

    node: str
    counts: Counts


def pack(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet]) -> list[PackingStep] | None:
    """Returns where all pods go, the fullest nodes first; None if no way was found."""
    wanted = tuple(pod_set.count for pod_set in pod_sets)
    if not any(wanted):
        return []
    most = capacities(groups, pod_sets)
    if any(count < each.count for count, each in zip(most, pod_sets, strict=True)):
        return None
    scale = _Scale(groups, pod_sets)
    whole = _one_node(groups, pod_sets, scale)
    if whole is not None:
        return [PackingStep(whole, wanted)]
    steps = _Packer(groups, pod_sets, scale, most).greedy()
    if steps is None and len(pod_sets) > 1 and _is_sufficient_in_total(groups, pod_sets):
        steps = _search(groups, pod_sets)
    return steps


def group_nodes(nodes: Iterable[tuple[tuple[bool, ...], Amounts, str]]) -> list[NodeGroup]:
    """Groups equal nodes (which pod sets they accept, their free capacity, their name)."""
    groups: dict[object, tuple[tuple[bool, ...], Amounts, list[str]]] = {}
    for accepts, free, name in nodes:
        groups.setdefault((accepts, tuple(free.items())), (accepts, free, []))[2].append(name)
    return [NodeGroup(accepts, free, sorted(names)) for accepts, free, names in groups.values()]


def capacities(groups: Iterable[NodeGroup], pod_sets: Sequence[PodSet]) -> list[int]:
    """Returns how many pods of each kind would fit without the others: an upper bound of every packing."""
    found = [0] * len(pod_sets)
    for group in groups:
        for index, pod_set in enumerate(pod_sets):
            if group.accepts[index]:
                found[index] += pod_set.capacity(group.free) * len(group.names)
    return found


class _Scale:
    """Makes amounts of different resources comparable: as a share of everything requested.

    `waste` is what stays unused on a node: first valuable resources that the gang does not request (a GPU), then
    shares.
    """

    def __init__(self, groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet]) -> None:
        total = total_requests(pod_sets, [pod_set.count for pod_set in pod_sets])
        share = {name: 1 / value for name, value in total.items() if value}
        self.weights = [max(amount * share.get(name, 0) for name, amount in pod_set.requests) for pod_set in pod_sets]
        self._sizes = [sum(amount * share.get(name, 0) for name, amount in pod_set.requests) for pod_set in pod_sets]
        self._base = [_unused(group.free, share) for group in groups]

    def waste(self, index: int, counts: Sequence[int]) -> tuple[int, float]:
        idle, whole = self._base[index]
        return idle, whole - sum(size * count for size, count in zip(self._sizes, counts, strict=True))


def _unused(free: Amounts, share: Mapping[str, float]) -> tuple[int, float]:
    return (
        sum(1 for name, value in free.items() if value > 0 and "/" in name and name not in share),
        sum(free.get(name, 0) * each for name, each in share.items()),
    )


def unused_by_one(free: Amounts, pod_set: PodSet) -> tuple[int, float]:
    """Returns what a node has that a single pod of this pod set does not use: see `_Scale`."""
    idle, whole = _unused(free, {name: 1 / value for name, value in pod_set.requests if value})
    return idle, whole - sum(1 for _, value in pod_set.requests if value)


def _one_node(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet], scale: _Scale) -> str | None:
    """Returns the node that takes all pods and is left with the least."""
    wanted = tuple(pod_set.count for pod_set in pod_sets)
    total = total_requests(pod_sets, wanted)
    fitting = (index for index, group in enumerate(groups) if _fits_all(group, wanted, total))
    best = min(fitting, key=lambda index: (scale.waste(index, wanted), groups[index].names[0]), default=None)
    return None if best is None else groups[best].names[0]


def _is_sufficient_in_total(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet]) -> bool:
    """Whether the nodes together have what all pods together request: otherwise no search helps."""
    total = total_requests(pod_sets, [pod_set.count for pod_set in pod_sets])
    return all(
        sum(max(group.free.get(name, 0), 0) * len(group.names) for group in groups) >= value
        for name, value in total.items()
    )


def _fits_all(group: NodeGroup, wanted: Counts, total: Mapping[str, int]) -> bool:
    if not all(accepts or not count for accepts, count in zip(group.accepts, wanted, strict=True)):
        return False
    free = group.free
    return all(free.get(name, 0) >= value for name, value in total.items() if value)


class _Packer:
    """Packs greedily, see the module's text. Used once."""

    def __init__(
        self, groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet], scale: _Scale, most: Sequence[int]
    ) -> None:
        self._pod_sets = pod_sets
        self._left = [pod_set.count for pod_set in pod_sets]
        self._groups = groups
        self._next = [0] * len(groups)
        self._scale = scale
        self._by_scarcity = sorted(range(len(pod_sets)), key=lambda k: (most[k] / max(pod_sets[k].count, 1), k))

    def greedy(self) -> list[PackingStep] | None:
        """Returns the steps, or None if some pods are left over."""
        steps: list[PackingStep] = []
        heap = [entry for index in range(len(self._groups)) if (entry := self._entry(index)) is not None]
        heapq.heapify(heap)
        while any(self._left):
            best = self._pop(heap)
            if best is None:
                return None
            index, counts = best
            if list(counts) == self._left:
                index = self._last(index)
            steps += self._take(index, counts)
            entry = self._entry(index)
            if entry is not None:
                heapq.heappush(heap, entry)
        return steps

    def _entry(self, index: int) -> tuple[float, tuple[int, float], str, int, Counts] | None:
        group = self._groups[index]
        if self._next[index] >= len(group.names):
            return None
        counts = self._fill(group)
        size = sum(weight * count for weight, count in zip(self._scale.weights, counts, strict=True))
        if not size:
            return None
        return -size, self._scale.waste(index, counts), group.names[self._next[index]], index, counts

    def _pop(self, heap: list[tuple[float, tuple[int, float], str, int, Counts]]) -> tuple[int, Counts] | None:
        """Returns the group that takes the most pods now; what it took before may be more than is left."""
        while heap:
            size, waste, name, index, _ = heapq.heappop(heap)
            entry = self._entry(index)
            if entry is None:
                continue
            if list(entry[4]) == self._left or entry[:3] <= (size, waste, name) or not heap or entry <= heap[0]:
                return index, entry[4]
            heapq.heappush(heap, entry)
        return None

    def _last(self, index: int) -> int:
        """Returns, of all groups that take the remaining pods, the one that is left with the least."""
        rest = tuple(self._left)
        total = total_requests(self._pod_sets, rest)
        best = index
        best_key = self._waste(index, rest)
        for other, group in enumerate(self._groups):
            if self._next[other] < len(group.names) and _fits_all(group, rest, total):
                key = self._waste(other, rest)
                if key < best_key:
                    best, best_key = other, key
        return best

    def _waste(self, index: int, counts: Counts) -> tuple[tuple[int, float], str]:
        return self._scale.waste(index, counts), self._groups[index].names[self._next[index]]

    def _take(self, index: int, counts: Counts) -> Iterator[PackingStep]:
        """Fills as many nodes of the group as take the same counts; equal shares stay equal meanwhile."""
        group, first = self._groups[index], self._next[index]
        times = min(left // count for left, count in zip(self._left, counts, strict=True) if count)
        if len(self._pod_sets) > 1:
            # The share was rounded up: the next node may get another one.
            times = min(times, max(1, times // 2))
        times = min(times, len(group.names) - first)
        self._next[index] = first + times
        self._left = [left - count * times for left, count in zip(self._left, counts, strict=True)]
        return (PackingStep(name, counts) for name in group.names[first : first + times])

    def _fill(self, group: NodeGroup) -> Counts:
        """Returns how many of the remaining pods one node of the group takes."""
        left = [count if accepts else 0 for count, accepts in zip(self._left, group.accepts, strict=True)]
        if sum(map(bool, left)) == 1:
            kind = next(index for index, count in enumerate(left) if count)
            left[kind] = min(left[kind], self._pod_sets[kind].capacity(group.free))
            return tuple(left)
        counts = self._shares(left, group.free)
        free = _subtract(group.free, total_requests(self._pod_sets, counts))
        for kind in self._by_scarcity:
            if left[kind] > counts[kind]:
                added = min(left[kind] - counts[kind], self._pod_sets[kind].capacity(free))
                if added:
                    counts[kind] += added
                    free = _subtract(free, {name: value * added for name, value in self._pod_sets[kind].requests})
        return tuple(counts)

    def _shares(self, left: list[int], free: Amounts) -> list[int]:
        """Returns the largest equal share of every kind that fits, rounded up."""
        most = max(left)
        if not most:
            return left
        kind = left.index(most)
        low, high = 0, min(most, self._pod_sets[kind].capacity(free))
        while low < high:
            middle = (low + high + 1) // 2
            taken = total_requests(self._pod_sets, [-(-count * middle // most) for count in left])
            if all(free.get(name, 0) >= value for name, value in taken.items() if value):
                low = middle
            else:
                high = middle - 1
        return [-(-count * low // most) for count in left]


def _search(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet]) -> list[PackingStep] | None:
    """Tries all ways, node by node, until the budget is spent."""
    wanted = tuple(pod_set.count for pod_set in pod_sets)
    # Of equal nodes no more are needed than there are pods.
    nodes = [
        (name, group) for group in groups if any(_counts_alone(group, pod_sets)) for name in group.names[: sum(wanted)]
    ]
    nodes.sort(key=lambda each: (-sum(_counts_alone(each[1], pod_sets)), each[0]))
    del nodes[_SEARCHED_NODES:]
    if len(nodes) * sum(wanted) > _SEARCH_BUDGET:
        return None
    return _Search(nodes, pod_sets).find(0, wanted)


class _Search:
    """Finds fills of the nodes from an index on that take all remaining pods. Failed states are remembered."""

    def __init__(self, nodes: Sequence[tuple[str, NodeGroup]], pod_sets: Sequence[PodSet]) -> None:
        self._nodes = nodes
        self._pod_sets = pod_sets
        self._hopeless: set[tuple[int, Counts]] = set()
        self._budget = _SEARCH_BUDGET
        # How many pods of each kind, alone, the nodes from each index on could take.
        capacity = [_counts_alone(group, pod_sets) for _, group in nodes]
        sums = itertools.accumulate(
            reversed(capacity), lambda a, b: tuple(map(sum, zip(a, b, strict=True))), initial=(0,) * len(pod_sets)
        )
        self._most = list(sums)[::-1]

    def find(self, index: int, left: Counts) -> list[PackingStep] | None:
        """Returns the steps on the nodes from `index` on that place all pods that are left."""
        if not any(left):
            return []
        if (index, left) in self._hopeless or any(a > b for a, b in zip(left, self._most[index], strict=True)):
            return None
        name, group = self._nodes[index]
        for counts in sorted(self._fills(group, left), reverse=True):
            self._budget -= 1
            if self._budget < 0:
                return None
            rest = self.find(index + 1, tuple(a - b for a, b in zip(left, counts, strict=True)))
            if rest is not None:
                return [PackingStep(name, counts), *rest] if any(counts) else rest
        self._hopeless.add((index, left))
        return None

    def _fills(self, group: NodeGroup, left: Counts) -> list[Counts]:
        """Returns all maximal fills of a node: a smaller one is never better for the nodes that follow."""
        fills: list[tuple[Counts, Amounts]] = [((), group.free)]
        for kind, pod_set in enumerate(self._pod_sets):
            wider: list[tuple[Counts, Amounts]] = []
            for counts, free in fills:
                most = min(left[kind], pod_set.capacity(free)) if group.accepts[kind] else 0
                self._budget -= most
                if self._budget < 0:
                    return []
                wider += [
                    ((*counts, count), _subtract(free, dict(pod_set.requests), count)) for count in range(most + 1)
                ]
            fills = wider
        return [counts for counts, free in fills if not self._fits_more(group, left, counts, free)]

    def _fits_more(self, group: NodeGroup, left: Counts, counts: Counts, free: Amounts) -> bool:
        return any(
            group.accepts[kind] and counts[kind] < left[kind] and pod_set.capacity(free) > 0
            for kind, pod_set in enumerate(self._pod_sets)
        )


def _counts_alone(group: NodeGroup, pod_sets: Sequence[PodSet]) -> Counts:
    return tuple(
        min(each.count, each.capacity(group.free)) if accepts else 0
        for each, accepts in zip(pod_sets, group.accepts, strict=True)
    )


def _subtract(free: Amounts, taken: Amounts, times: int = 1) -> dict[str, int]:
    return {name: value - taken.get(name, 0) * times for name, value in free.items()}
