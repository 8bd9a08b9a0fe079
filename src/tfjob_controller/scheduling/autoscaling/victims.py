"""Selects the members of running gangs to remove so that a pending gang fits: all or none, and no more than needed.

Theory of operation. Candidates are ordered, and the shortest prefix is taken with which the pending gang fits, tried
with the live placement. Then victims are spared whose capacity its placement does not use, and finally each one without
which it still fits. Three orders are tried until one gives a plan:

1. the policy: the lowest priority first, then the gang furthest above its minimum, then the one that saved its work
   last, member by member (`ElasticGang.removal_order`). A shrink need not cost any work, so the sizes come first;
2. node by node, first those where the pending gang gains most for each removed member: it may need a whole node, and
   the first order removes one member here and one there;
3. all combinations within a budget, which is enough for small clusters and gangs.

Gangs of an Indexed Job lose their highest indexes only: in each order they lose members in their removal order, and a
victim is spared only if it is the last one of its gang.

Nothing is tried if the total of any resource is too small; most calls end there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfjob_controller.api.common.podrequests import add_amounts
from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.autoscaling.elasticgang import ElasticGang
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement
from tfjob_controller.scheduling.podsets import PodSet, requests_by_kind, total_requests
from tfjob_controller.scheduling.whatif import WhatIfView, shortest_prefix

# How many placements the third order may try, and how many nodes in all: a tenth of a second or less.
_SEARCHED_PLACEMENTS = 200
_SEARCHED_NODES = 2_000
# How many victims are spared one by one, with one placement each.
_SPARED_ONE_BY_ONE = 32


@dataclass(frozen=True, slots=True)
class Victim:
    """A member that may be removed."""

    gang: ElasticGang
    member: str

    @property
    def node(self) -> str:
        return self.gang.nodes[self.member]

    @property
    def freed(self) -> FreedCapacity:
        """The capacity that its removal frees."""
        return FreedCapacity(self.node, dict(self.gang.pod_set.requests))


# Returns the placement of the pending gang if these victims were removed.
TrialPlacement = Callable[[Iterable[Victim]], Placement | None]


@dataclass(frozen=True, slots=True)
class VictimSelection:
    """The victims, and where the pending gang is then placed."""

    victims: Sequence[Victim]
    placement: Placement


@dataclass(frozen=True, slots=True)
class VictimSelector:
    """Selects victims for one pending gang.

    `pod_sets` are those of the gang, and `freed` is the capacity of terminating pods. `try_placement` places `pod_sets`
    with `freed` and the capacity of the victims that it is given.
    """

    view: ClusterView
    pod_sets: Sequence[PodSet]
    candidates: Sequence[ElasticGang]
    freed: Sequence[FreedCapacity]
    try_placement: TrialPlacement

    def select(self) -> VictimSelection | None:
        """Returns None if there is no way."""
        if not self.candidates or not self._is_sufficient_in_total():
            return None
        found = self._shortest_prefix(_policy_order(self.candidates)) or self._select_otherwise()
        return None if found is None else self._spare(found)

    def _shortest_prefix(self, line: Sequence[Victim]) -> VictimSelection | None:
        found = shortest_prefix(line, self.try_placement)
        return None if found is None else VictimSelection(*found)

    def _is_sufficient_in_total(self) -> bool:
        """Whether the capacity that is free, or could be, is as much as is requested, resource by resource."""
        missing = total_requests(self.pod_sets, [pod_set.count for pod_set in self.pod_sets])
        for node_filter in {pod_set.node_filter for pod_set in self.pod_sets}:
            for key, group in self.view.candidates(node_filter).groups.items():
                _subtract(missing, key, len(group))
        for each in self.freed:
            _subtract(missing, each.amounts.items(), 1)
        for gang in self.candidates:
            _subtract(missing, gang.pod_set.requests, gang.removable_count())
        return all(value <= 0 for value in missing.values())

    def _select_otherwise(self) -> VictimSelection | None:
        """Tries the second and the third order."""
        all_victims = [Victim(gang, member) for gang in self.candidates for member in gang.removal_order()]
        if self.try_placement(all_victims) is None:
            return None
        found = self._shortest_prefix(self._node_order(all_victims))
        if found is not None:
            return found
        budget = min(_SEARCHED_PLACEMENTS, _SEARCHED_NODES // max(len(self.view.node_infos), 1))
        return _Search(self.candidates, self.try_placement, budget).find(0, [])

    def _node_order(self, all_victims: Iterable[Victim]) -> list[Victim]:
        """Returns the victims node by node, no more members of each gang than it may lose; at last those by index."""
        by_node: dict[str, list[Victim]] = {}
        for victim in all_victims:
            if not victim.gang.is_indexed:
                by_node.setdefault(victim.node, []).append(victim)
        with_all = self._what_if(each for some in by_node.values() for each in some)

        def gain(node: str) -> float:
            info = with_all.node_infos.get(node)
            if info is None:
                return 0.0
            share = max(
                min(pod_set.capacity(info.free), pod_set.count) / max(pod_set.count, 1) for pod_set in self.pod_sets
            )
            return share / len(by_node[node])

        left = {gang.key: gang.removable_count() for gang in self.candidates}
        line: list[Victim] = []
        for node in sorted(by_node, key=lambda node: (-gain(node), node)):
            for victim in by_node[node]:
                if left[victim.gang.key]:
                    left[victim.gang.key] -= 1
                    line.append(victim)
        return line + _policy_order([gang for gang in self.candidates if gang.is_indexed])

    def _spare(self, found: VictimSelection) -> VictimSelection:
        """Drops victims that are not needed, the last ones first."""
        victims = self._used_victims(found)
        placement = self.try_placement(victims)
        if placement is None:
            # Packing is not exact for several kinds of pods: what fits into more capacity may not be found in less.
            victims, placement = list(found.victims), found.placement
        kept: set[str] = set()
        for victim in list(reversed(victims))[:_SPARED_ONE_BY_ONE]:
            if victim.gang.key in kept:
                continue
            others = [each for each in victims if each is not victim]
            without = self.try_placement(others)
            if without is not None:
                victims, placement = others, without
            elif victim.gang.is_indexed:
                kept.add(victim.gang.key)
        return VictimSelection(victims, placement)

    def _used_victims(self, found: VictimSelection) -> list[Victim]:
        """Returns the victims whose capacity the placement uses."""
        left = self._free_after_placement(found)
        used: list[Victim] = []
        kept: set[str] = set()
        for victim in reversed(found.victims):
            free = left.get(victim.node)
            amounts = victim.gang.pod_set.requests
            if victim.gang.key in kept:
                used.append(victim)
                continue
            if free is None:
                continue
            if all(free.get(name, 0) >= value for name, value in amounts):
                add_amounts(free, dict(amounts), -1)
            else:
                used.append(victim)
                if victim.gang.is_indexed:
                    kept.add(victim.gang.key)
        return used[::-1]

    def _free_after_placement(self, found: VictimSelection) -> dict[str, dict[str, int]]:
        """Returns what is left on the nodes of the placement."""
        what_if = self._what_if(found.victims)
        amounts = requests_by_kind(self.pod_sets)
        left = {node: dict(what_if.node_infos[node].free) for node in set(found.placement.node_of.values())}
        for member, node in found.placement.node_of.items():
            add_amounts(left[node], amounts[kind_of(member)], -1)
        return left

    def _what_if(self, victims: Iterable[Victim]) -> WhatIfView:
        return WhatIfView(self.view, [*self.freed, *(victim.freed for victim in victims)])


def _policy_order(candidates: Iterable[ElasticGang]) -> list[Victim]:
    """All removable members; each next one from the gang that is furthest above its minimum then."""
    heap = [
        (
            candidate.priority,
            -candidate.surplus_ratio(len(candidate.nodes)),
            -_saved_seconds(candidate),
            candidate.key,
            0,
            candidate,
        )
        for candidate in candidates
    ]
    heapq.heapify(heap)
    removable = {candidate.key: candidate.removal_order() for candidate in candidates}
    line: list[Victim] = []
    while heap:
        _, _, saved, key, removed, gang = heapq.heappop(heap)
        line.append(Victim(gang, removable[key][removed]))
        removed += 1
        if removed < gang.removable_count():
            surplus = gang.surplus_ratio(len(gang.nodes) - removed)
            heapq.heappush(heap, (gang.priority, -surplus, saved, key, removed, gang))
    return line


def _saved_seconds(gang: ElasticGang) -> float:
    return gang.saved_time.timestamp() if gang.saved_time is not None else 0.0


def _subtract(missing: dict[str, int], amounts: Iterable[tuple[str, int]], times: int) -> None:
    for name, value in amounts:
        if value > 0 and name in missing:
            missing[name] -= value * times


class _Search:
    """Tries all combinations, gang by gang, with as many members of each as it may lose. Used once."""

    def __init__(self, candidates: Sequence[ElasticGang], try_placement: TrialPlacement, budget: int) -> None:
        self._candidates = candidates
        self._try_placement = try_placement
        self._budget = budget

    def find(self, index: int, chosen: list[Victim]) -> VictimSelection | None:
        self._budget -= 1
        if self._budget < 0:
            return None
        rest = [Victim(gang, member) for gang in self._candidates[index:] for member in gang.removal_order()]
        placement = self._try_placement([*chosen, *rest])
        if placement is None:
            return None
        if index == len(self._candidates):
            return VictimSelection(chosen, placement)
        gang = self._candidates[index]
        for members in _choices(gang):
            found = self.find(index + 1, [*chosen, *(Victim(gang, member) for member in members)])
            if found is not None or self._budget < 0:
                return found
        return None


def _choices(gang: ElasticGang) -> Iterator[Sequence[str]]:
    """How many of each node: which members of one node are removed makes no difference."""
    if gang.is_indexed:
        order = gang.removal_order()
        return (order[:count] for count in range(gang.removable_count(), -1, -1))
    by_node: dict[str, list[str]] = {}
    for member in gang.removal_order():
        by_node.setdefault(gang.nodes[member], []).append(member)
    return _split(list(by_node.values()), gang.removable_count())


def _split(nodes: Sequence[Sequence[str]], count: int) -> Iterator[Sequence[str]]:
    if not nodes:
        yield ()
        return
    behind = sum(map(len, nodes[1:]))
    for here in range(min(count, len(nodes[0])), max(count - behind, 0) - 1, -1):
        for others in _split(nodes[1:], count - here):
            yield (*nodes[0][:here], *others)
