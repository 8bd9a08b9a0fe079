"""A node for every member of a gang, or for none.

Preferences, in this order: all members on one node; all within one domain of a topology key (a zone, a rack), the
widest key first and each narrower one within the domain chosen before; the fewest nodes; the least capacity left over;
the node's name. If not all members fit but the minimum does, as many as fit are placed.

`packing` describes how complete the search is: exact for pods of one kind, otherwise within a budget.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfjob_controller.api.gang import NodePlacement
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import CandidateNodes, NodeInfo
from tfjob_controller.scheduling.packing import NodeGroup, PackingStep, capacities, group_nodes, pack, unused_by_one
from tfjob_controller.scheduling.podsets import PodSet


class NodeInfoLister(Protocol):
    """Nodes and their free capacity: a `ClusterView`, or a `WhatIfView`."""

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        """All nodes, by name."""

    def candidates(self, node_filter: NodeFilter) -> CandidateNodes:
        """Returns the nodes that pass a filter."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of every placed member; `counts` is the number of placed pods of each kind."""

    node_of: Mapping[str, str]
    counts: Mapping[str, int]


def placement_by_node(node_of: Mapping[str, str]) -> tuple[NodePlacement, ...]:
    """Returns a placement in the form of a Gang's status, by name of the node; members stay in the order given."""
    by_node: dict[str, list[str]] = {}
    for member, node in node_of.items():
        by_node.setdefault(node, []).append(member)
    return tuple(NodePlacement(node, tuple(members)) for node, members in sorted(by_node.items()))


NodePredicate = Callable[[NodeInfo], bool]
# Returns the topology domain of a node, by the node's name.
DomainLookup = Callable[[str], str | None]


def place(
    view: NodeInfoLister,
    pod_sets: Sequence[PodSet],
    topology_keys: Sequence[str] = (),
    allowed: NodePredicate | None = None,
) -> Placement | None:
    """Places all pods, or as many as fit, on the nodes that are `allowed`; None if not even the minimums fit."""
    groups = _groups(view, pod_sets, allowed)
    most = capacities(groups, pod_sets)
    if any(count < each.min_count for count, each in zip(most, pod_sets, strict=True)):
        return None
    bounded = [each.with_count(min(each.count, count)) for each, count in zip(pod_sets, most, strict=True)]
    return _largest(groups, bounded, [_domain_lookup(view, key) for key in topology_keys])


def find_member_node(
    view: NodeInfoLister,
    pod_set: PodSet,
    exclude: Collection[str] = (),
    near: Collection[str] = (),
    nearest: Collection[str] = (),
) -> str | None:
    """Returns a node for one pod: one of `nearest` if possible, else of `near` (where its peers are), else any.

    Of several it returns the one that is left with the least capacity.
    """
    return MemberNodes(view, pod_set, near, nearest, exclude).find()


class MemberNodes:
    """Finds nodes for single pods of one pod set, one after the other: `find_member_node` for many members.

    The caller reserves the capacity of each node that was found. That node is then one where its peers are. The nodes
    are in a heap under what they had left when they were last evaluated: the first one is evaluated again before it is
    returned, and `refresh` adds a node that has more capacity than before. Nodes in `exclude` are for none of the pods.
    """

    def __init__(
        self,
        view: NodeInfoLister,
        pod_set: PodSet,
        near: Collection[str] = (),
        nearest: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> None:
        self._view = view
        self._pod_set = pod_set
        self._near = set(near)
        self._nearest = nearest
        self._candidates = view.candidates(pod_set.node_filter)
        # Distance, what is left over, and name.
        self._heap: list[tuple[int, tuple[int, float], str]] = []
        for group in self._candidates.groups.values():
            free = next(iter(group.values())).free
            if pod_set.capacity(free):
                unused = unused_by_one(free, pod_set)
                self._heap += [(self._distance(name), unused, name) for name in group if name not in exclude]
        heapq.heapify(self._heap)

    def find(self, exclude: Collection[str] = ()) -> str | None:
        """Returns the best node that is not in `exclude` for this pod."""
        excluded: list[tuple[int, tuple[int, float], str]] = []
        found = None
        while found is None and self._heap:
            entry = heapq.heappop(self._heap)
            name = entry[-1]
            present = self._entry(name)
            if present != entry:
                # Its capacity has changed.
                if present is not None:
                    heapq.heappush(self._heap, present)
                continue
            excluded.append(entry)
            if name not in exclude:
                found = name
                self._near.add(name)
        for entry in excluded:
            heapq.heappush(self._heap, entry)
        return found

    def refresh(self, name: str) -> None:
        """Add a node whose capacity has grown."""
        entry = self._entry(name)
        if entry is not None:
            heapq.heappush(self._heap, entry)

    def _entry(self, name: str) -> tuple[int, tuple[int, float], str] | None:
        info = self._view.node_infos.get(name)
        if info is None or name not in self._candidates.groups.get(info.free_key, ()):
            return None
        if not self._pod_set.capacity(info.free):
            return None
        return self._distance(name), unused_by_one(info.free, self._pod_set), name

    def _distance(self, name: str) -> int:
        if name in self._nearest:
            return 0
        return 1 if name in self._near else 2


def _domain_lookup(view: NodeInfoLister, key: str) -> DomainLookup:
    return lambda name: view.node_infos[name].node.metadata.labels.get(key)


def _largest(groups: Sequence[NodeGroup], pod_sets: list[PodSet], keys: Sequence[DomainLookup]) -> Placement | None:
    """Places all pods, or else the most of one pod set after another that fit beside the minimums of the next ones."""
    placement = _local(groups, pod_sets, keys)
    if placement is not None or all(each.min_count == each.count for each in pod_sets):
        return placement
    reduced = [each.with_count(each.min_count) for each in pod_sets]
    if _local(groups, reduced, keys) is None:
        return None
    for index, pod_set in enumerate(pod_sets):
        low, high = pod_set.min_count, pod_set.count
        while low < high:
            middle = (low + high + 1) // 2
            reduced[index] = pod_set.with_count(middle)
            low, high = (middle, high) if pack(groups, reduced) is not None else (low, middle - 1)
        reduced[index] = pod_set.with_count(low)
    return _local(groups, reduced, keys)


def _local(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet], keys: Sequence[DomainLookup]) -> Placement | None:
    """Places on one node, otherwise in the narrowest domain that fits, otherwise anywhere."""
    steps = pack(groups, pod_sets)
    if steps is None or len(steps) < 2:
        return None if steps is None else _name_members(steps, pod_sets)
    for domain_of in keys:
        inner = _best_domain(groups, pod_sets, domain_of)
        if inner is not None:
            groups, steps = inner
    return _name_members(steps, pod_sets)


def _best_domain(
    groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet], domain_of: DomainLookup
) -> tuple[Sequence[NodeGroup], list[PackingStep]] | None:
    """Returns the domain that fits on the fewest nodes; of several the one with the least capacity, then by name."""
    found: list[tuple[tuple[int, list[int], str], Sequence[NodeGroup], list[PackingStep]]] = []
    for domain, inside in sorted(_domains(groups, domain_of).items()):
        steps = pack(inside, pod_sets)
        if steps is not None:
            found.append(((len(steps), capacities(inside, pod_sets), domain), inside, steps))
    best = min(found, key=lambda each: each[0], default=None)
    return None if best is None else best[1:]


def _domains(groups: Sequence[NodeGroup], domain_of: DomainLookup) -> dict[str, list[NodeGroup]]:
    """Groups the nodes by the value of a label; nodes without it belong to no domain."""
    domains: dict[str, list[NodeGroup]] = {}
    for group in groups:
        names: dict[str, list[str]] = {}
        for name in group.names:
            domain = domain_of(name)
            if domain is not None:
                names.setdefault(domain, []).append(name)
        for domain, inside in names.items():
            domains.setdefault(domain, []).append(NodeGroup(group.accepts, group.free, inside))
    return domains


def _name_members(steps: Iterable[PackingStep], pod_sets: Sequence[PodSet]) -> Placement:
    """Assigns members to nodes by index, so that neighbours stay together."""
    placed = [0] * len(pod_sets)
    node_of: dict[str, str] = {}
    for step in steps:
        for index, count in enumerate(step.counts):
            for number in range(placed[index], placed[index] + count):
                node_of[f"{pod_sets[index].name}-{number}"] = step.node
            placed[index] += count
    return Placement(node_of, {each.name: count for each, count in zip(pod_sets, placed, strict=True)})


def _groups(view: NodeInfoLister, pod_sets: Sequence[PodSet], allowed: NodePredicate | None) -> list[NodeGroup]:
    """Returns the nodes that accept any of the pods, grouped by equality."""
    filters = list(dict.fromkeys(pod_set.node_filter for pod_set in pod_sets))
    if len(filters) == 1:
        return _groups_of_one_filter(view, filters[0], len(pod_sets), allowed)
    candidates = {node_filter: view.candidates(node_filter) for node_filter in filters}
    masks: dict[str, list[bool]] = {}
    node_infos: dict[str, NodeInfo] = {}
    for index, each in enumerate(pod_sets):
        for group in candidates[each.node_filter].groups.values():
            for name, info in group.items():
                node_infos[name] = info
                masks.setdefault(name, [False] * len(pod_sets))[index] = True
    infos = node_infos.values() if allowed is None else filter(allowed, node_infos.values())
    return group_nodes((tuple(masks[info.name]), info.free, info.name) for info in infos)


def _groups_of_one_filter(
    view: NodeInfoLister, node_filter: NodeFilter, count: int, allowed: NodePredicate | None
) -> list[NodeGroup]:
    """Does the same where all pods have the same filter: its candidates are grouped already."""
    accepts = (True,) * count
    found: list[NodeGroup] = []
    for group in view.candidates(node_filter).groups.values():
        names = sorted(group if allowed is None else (name for name, info in group.items() if allowed(info)))
        if names:
            found.append(NodeGroup(accepts, group[names[0]].free, names))
    return found
