"""A node for every member of a gang, or for none.

Where it goes, in this order: all on one node if one can take it; all within one domain of a topology key (a zone, a
rack), the widest key first and each narrower one within what the wider ones left; on the fewest nodes; with the least
left over; by name. If not all fit but the minimum does, as many as fit.

How far it is complete stands in `packing`: exactly for pods of one kind, else within a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tfjob_controller.api.gang import NodePlacement
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import CandidateNodes, NodeInfo
from tfjob_controller.scheduling.packing import NodeGroup, PackingStep, capacities, group_nodes, pack
from tfjob_controller.scheduling.podsets import PodSet


class NodeInfoLister(Protocol):
    """Nodes and what they have left: `view.ClusterView`, or what could be (`supposed.Supposed`)."""

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        """All nodes' rooms, by name."""

    def candidates(self, constraint: NodeFilter) -> CandidateNodes:
        """The nodes that suit a constraint."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of every member that is placed. `counts` is how many of each kind are."""

    node_of: Mapping[str, str]
    counts: Mapping[str, int]

    def by_node(self) -> tuple[NodePlacement, ...]:
        """As a Gang's status has it."""
        nodes: dict[str, list[str]] = {}
        for member_id, node in self.node_of.items():
            nodes.setdefault(node, []).append(member_id)
        return tuple(NodePlacement(node, tuple(members)) for node, members in nodes.items())


@dataclass(frozen=True, slots=True)
class NoFit:
    """There is no room: `capacities` is how many pods of each kind would fit, each kind alone."""

    capacities: Mapping[str, int]


NodePredicate = Callable[[NodeInfo], bool]
# The value of one label of the node of this name.
DomainLookup = Callable[[str], str | None]


def place(
    view: NodeInfoLister,
    demands: Sequence[PodSet],
    topology_keys: Sequence[str] = (),
    usable: NodePredicate | None = None,
) -> Placement | NoFit:
    """Place all, or as many as fit but no fewer than the least of each; `usable` keeps off some nodes."""
    groups = _groups(view, demands, usable)
    most = capacities(groups, demands)
    if any(count < each.min_count for count, each in zip(most, demands, strict=True)):
        return _no_fit(demands, most)
    clipped = [each.with_count(min(each.count, count)) for each, count in zip(demands, most, strict=True)]
    keys = [_labels(view, key) for key in topology_keys]
    return _fullest(groups, clipped, keys) or _no_fit(demands, most)


def find_member_node(
    view: NodeInfoLister,
    demand: PodSet,
    exclude: Collection[str] = (),
    near: Collection[str] = (),
    nearest: Collection[str] = (),
) -> str | None:
    """Another node for one pod: one of `nearest` if possible, else of `near` (where its siblings are), else any.

    Of several the one that is left with least.
    """
    one = replace(demand, count=1, min_count=1)
    for names in (*filter(None, (nearest, near)), None):
        # Asking for each node takes its time where there are thousands.
        usable = _allowed(names, exclude) if exclude or names is not None else None
        placement = place(view, [one], usable=usable)
        if isinstance(placement, Placement):
            return next(iter(placement.node_of.values()))
    return None


def _labels(view: NodeInfoLister, key: str) -> DomainLookup:
    return lambda name: view.node_infos[name].node.metadata.labels.get(key)


def _allowed(names: Collection[str] | None, exclude: Collection[str]) -> NodePredicate:
    return lambda room: room.name not in exclude and (names is None or room.name in names)


def _fullest(groups: Sequence[NodeGroup], demands: list[PodSet], keys: Sequence[DomainLookup]) -> Placement | None:
    """All of the demands, else for one kind after another as many as fit beside the least of those that follow."""
    placement = _local(groups, demands, keys)
    if placement is not None or all(each.min_count == each.count for each in demands):
        return placement
    reduced = [each.with_count(each.min_count) for each in demands]
    if _local(groups, reduced, keys) is None:
        return None
    for index, demand in enumerate(demands):
        low, high = demand.min_count, demand.count
        while low < high:
            middle = (low + high + 1) // 2
            reduced[index] = demand.with_count(middle)
            low, high = (middle, high) if pack(groups, reduced) is not None else (low, middle - 1)
        reduced[index] = demand.with_count(low)
    return _local(groups, reduced, keys)


def _local(groups: Sequence[NodeGroup], demands: Sequence[PodSet], keys: Sequence[DomainLookup]) -> Placement | None:
    """On one node, else in the narrowest domain that takes all, else wherever it fits."""
    steps = pack(groups, demands)
    if steps is None or len(steps) < 2:
        return None if steps is None else _named(steps, demands)
    for labels in keys:
        inner = _in_a_domain(groups, demands, labels)
        if inner is not None:
            groups, steps = inner
    return _named(steps, demands)


def _in_a_domain(
    groups: Sequence[NodeGroup], demands: Sequence[PodSet], labels: DomainLookup
) -> tuple[Sequence[NodeGroup], list[PackingStep]] | None:
    """The domain that takes all on the fewest nodes: those that have least room come first, then by name."""
    found: list[tuple[tuple[int, list[int], str], Sequence[NodeGroup], list[PackingStep]]] = []
    for domain, inside in sorted(_domains(groups, labels).items()):
        steps = pack(inside, demands)
        if steps is not None:
            found.append(((len(steps), capacities(inside, demands), domain), inside, steps))
    best = min(found, key=lambda each: each[0], default=None)
    return None if best is None else best[1:]


def _domains(groups: Sequence[NodeGroup], labels: DomainLookup) -> dict[str, list[NodeGroup]]:
    """The nodes by the value of a label; those that have none belong to no domain."""
    domains: dict[str, list[NodeGroup]] = {}
    for group in groups:
        names: dict[str, list[str]] = {}
        for name in group.names:
            domain = labels(name)
            if domain is not None:
                names.setdefault(domain, []).append(name)
        for domain, inside in names.items():
            domains.setdefault(domain, []).append(NodeGroup(group.accepts, group.free, inside))
    return domains


def _named(steps: Iterable[PackingStep], demands: Sequence[PodSet]) -> Placement:
    """Members by their numbers: neighbours stay together."""
    placed = [0] * len(demands)
    node_of: dict[str, str] = {}
    for step in steps:
        for index, count in enumerate(step.counts):
            for number in range(placed[index], placed[index] + count):
                node_of[f"{demands[index].name}-{number}"] = step.node
            placed[index] += count
    return Placement(node_of, {each.name: count for each, count in zip(demands, placed, strict=True)})


def _no_fit(demands: Sequence[PodSet], most: Sequence[int]) -> NoFit:
    return NoFit({each.name: count for each, count in zip(demands, most, strict=True)})


def _groups(view: NodeInfoLister, demands: Sequence[PodSet], usable: NodePredicate | None) -> list[NodeGroup]:
    """The nodes that suit any of the demands, those that are alike together."""
    constraints = list(dict.fromkeys(each.node_filter for each in demands))
    if len(constraints) == 1:
        return _one_pool(view, constraints[0], len(demands), usable)
    suited = {each: view.candidates(each) for each in constraints}
    masks: dict[str, list[bool]] = {}
    rooms: dict[str, NodeInfo] = {}
    for index, each in enumerate(demands):
        for group in suited[each.node_filter].groups.values():
            for name, room in group.items():
                rooms[name] = room
                masks.setdefault(name, [False] * len(demands))[index] = True
    kept = rooms.values() if usable is None else filter(usable, rooms.values())
    return group_nodes((tuple(masks[room.name]), room.free, room.name) for room in kept)


def _one_pool(
    view: NodeInfoLister, constraint: NodeFilter, count: int, usable: NodePredicate | None
) -> list[NodeGroup]:
    """The same where all demands suit the same nodes: their pool is in groups already."""
    suits = (True,) * count
    found: list[NodeGroup] = []
    for group in view.candidates(constraint).groups.values():
        names = sorted(group if usable is None else (name for name, room in group.items() if usable(room)))
        if names:
            found.append(NodeGroup(suits, group[names[0]].free, names))
    return found
