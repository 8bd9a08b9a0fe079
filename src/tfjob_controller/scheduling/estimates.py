"""How much of a gang the nodes could take now, kept up to date with little work.

For each kind of pod: how many would fit if there were no others, on how many nodes, and how many if only one resource
counted. That is an upper bound: where it is less than a gang needs, no placement need be tried. It changes by what the
changed nodes could take before and after, so that of thousands of gangs that wait each costs microseconds per event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import NodeInfo, NodeInfoChange
from tfjob_controller.scheduling.packing import NodeGroup, capacities, group_nodes, pack
from tfjob_controller.scheduling.podsets import PodSet


@dataclass(slots=True)
class PodSetEstimate:
    """Of one kind of pod: `by_resource` is in the order of the demand's amounts."""

    count: int
    nodes: int
    by_resource: list[int]

    def fingerprint(self) -> tuple[int, ...]:
        return self.count, self.nodes, *self.by_resource


class CapacityEstimate:
    """For one shape of gang. `may_have_grown` is set when room has come since it was last cleared."""

    def __init__(self, view: ClusterView, demands: Sequence[PodSet]) -> None:
        self._view = view
        self._demands = demands
        self._version = view.version
        self.has_grown = True
        self.estimates = [self._counted(each) for each in demands]
        self._is_enough = self._judged()

    @property
    def is_sufficient(self) -> bool:
        """Whether the least of every kind would fit, each kind alone."""
        return self._is_enough

    def refresh(self) -> None:
        """Take in what has changed in the view."""
        view = self._view
        if self._version == view.version:
            return
        changes = view.changes_since(self._version)
        self._version = view.version
        if changes is None or len(changes) > len(view.node_infos):
            self.estimates = [self._counted(each) for each in self._demands]
            self.has_grown = True
        else:
            for demand, tally in zip(self._demands, self.estimates, strict=True):
                self._adjust(demand, tally, changes)
        self._is_enough = self._judged()

    def _judged(self) -> bool:
        return all(tally.count >= each.min_count for tally, each in zip(self.estimates, self._demands, strict=True))

    def fingerprint(self) -> tuple[int, ...]:
        """All numbers: while they are equal, so is what can be said."""
        return tuple(number for tally in self.estimates for number in tally.fingerprint())

    def _counted(self, demand: PodSet) -> PodSetEstimate:
        tally = PodSetEstimate(0, 0, [0] * len(demand.requests))
        for group in self._view.candidates(demand.node_filter).groups.values():
            room = next(iter(group.values()))
            _count(tally, demand, room, len(group))
        return tally

    def _adjust(self, demand: PodSet, tally: PodSetEstimate, changes: Iterable[NodeInfoChange]) -> None:
        objection = demand.node_filter.rejection
        for change in changes:
            before, after = change.before, change.after
            if before is not None and not objection(before.node):
                _count(tally, demand, before, -1)
            if after is not None and not objection(after.node):
                _count(tally, demand, after, 1)
                self.has_grown = self.has_grown or _has_grown(before, after)


def _count(tally: PodSetEstimate, demand: PodSet, room: NodeInfo, nodes: int) -> None:
    free = room.free
    least = -1
    for index, (name, amount) in enumerate(demand.requests):
        fits = max(free.get(name, 0) // amount, 0)
        tally.by_resource[index] += fits * nodes
        least = fits if least < 0 else min(least, fits)
    if least > 0:
        tally.count += least * nodes
        tally.nodes += nodes


def _has_grown(before: NodeInfo | None, after: NodeInfo) -> bool:
    """Whether anything could fit now that did not before."""
    if before is None or before.node is not after.node:
        return True
    return any(value > before.free.get(name, 0) for name, value in after.free.items())


_Constraints = tuple[NodeFilter, ...]
# How old the picture of the cluster without gangs may be. Making it costs tens of milliseconds on thousands of nodes,
# and what it decides (who holds room for long) is nothing that a foreign pod more or less should turn around.
_PICTURE_AGE = timedelta(seconds=10)
# How many gangs are asked in one pass whether they would fit there; the others keep their old answers.
_ASKED_PER_PASS = 1


class HypotheticalCapacity:
    """Over one view; threads as there."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._empty: tuple[Hashable, dict[_Constraints, list[NodeGroup]]] = (None, {})
        self._without_gangs: dict[_Constraints, list[NodeGroup]] = {}
        self._picture = 0
        self._picture_of: tuple[int, datetime] | None = None
        self._objections: tuple[Hashable, dict[NodeFilter, str]] = (None, {})
        self._left_to_ask = 0

    @property
    def picture(self) -> int:
        """Number of the picture of the cluster without gangs; answers from an older one are old."""
        return self._picture

    def start_pass(self, now: datetime) -> None:
        self._left_to_ask = _ASKED_PER_PASS
        known = self._picture_of
        if known is None or known[0] != self._view.nodes_version or abs(now - known[1]) > _PICTURE_AGE:
            self._picture_of = self._view.nodes_version, now
            self._picture += 1
            self._without_gangs = {}

    def empty(self, demands: Sequence[PodSet]) -> Sequence[NodeGroup]:
        """The nodes with all that they have."""
        version = self._view.nodes_version
        if self._empty[0] != version:
            self._empty = version, {}
        return self._kept(self._empty[1], demands, lambda room: room.allocatable)

    def fits_empty(self, demands: Sequence[PodSet]) -> bool:
        return _fits(self.empty(demands), demands)

    def objections(self, constraint: NodeFilter) -> str:
        """How many nodes do not suit now, and why."""
        version = self._view.nodes_version
        if self._objections[0] != version:
            self._objections = version, {}
        found = self._objections[1]
        if constraint not in found:
            found[constraint] = objections(constraint, self._view.node_infos.values())
        return found[constraint]

    def may_ask(self) -> bool:
        """Whether one more gang may be asked in this pass."""
        self._left_to_ask -= 1
        return self._left_to_ask >= 0

    def fits_without_gangs(self, demands: Sequence[PodSet]) -> bool:
        """Whether it would fit if all gangs were gone and foreign pods stayed."""
        view = self._view
        return _fits(self._kept(self._without_gangs, demands, lambda room: view.free_without_gangs(room.name)), demands)

    def _kept(
        self,
        cache: dict[_Constraints, list[NodeGroup]],
        demands: Sequence[PodSet],
        free: Callable[[NodeInfo], Mapping[str, int]],
    ) -> list[NodeGroup]:
        constraints = tuple(each.node_filter for each in demands)
        if constraints not in cache:
            masked = (
                (tuple(each.could_accept(room.node) for each in constraints), room)
                for room in self._view.node_infos.values()
            )
            cache[constraints] = group_nodes((suits, free(room), room.name) for suits, room in masked if any(suits))
        return cache[constraints]


def _fits(groups: Sequence[NodeGroup], demands: Sequence[PodSet]) -> bool:
    most = capacities(groups, demands)
    if any(count < each.min_count for count, each in zip(most, demands, strict=True)):
        return False
    return len(demands) == 1 or pack(groups, [each.with_count(each.min_count) for each in demands]) is not None


def objections(constraint: NodeFilter, rooms: Iterable[NodeInfo]) -> str:
    """How many nodes do not suit and why: `2 not ready, 3 unschedulable`."""
    found = Counter(constraint.rejection(room.node) for room in rooms)
    return ", ".join(f"{count} {words}" for words, count in sorted(found.items()) if words)
