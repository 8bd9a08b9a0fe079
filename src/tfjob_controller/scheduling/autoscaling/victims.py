"""Which members of running gangs go, so that a gang which waits fits: all or nothing, and none that need not.

Theory of operation. Members are lined up, and the shortest beginning of the line is taken with which the gang that
waits fits, tried with the live placement. Then all are spared whose room its placement does not use, and at last each
one without which it still fits. Three lines are tried, until one gives a plan:

1. the order of the policy: the lowest priority first, then from whoever is furthest above its minimum, member by member
   (`Elastic.leavers`);
2. node by node, those first where the gang that waits gets most for each member that goes: it may need a whole node,
   and the first line takes one here and one there;
3. all ways, as far as a budget goes, which is enough for clusters of some nodes and gangs of some members.

What all resources together make impossible is not tried at all: that is what most questions end with.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.autoscaling.elasticgang import ElasticGang
from tfjob_controller.scheduling.clusterview import ClusterView, WhatIfView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement
from tfjob_controller.scheduling.podsets import PodSet, total_requests

# How many placements the third line may try, and how many nodes they may look at in all: a tenth of a second or less.
_SEARCHED_PLACEMENTS = 200
_SEARCHED_NODES = 2_000
# How many members the last step of sparing looks at, one placement each.
_SPARED_ONE_BY_ONE = 32


@dataclass(frozen=True, slots=True)
class Victim:
    """A member that may go."""

    gang: ElasticGang
    member: str

    @property
    def node(self) -> str:
        return self.gang.nodes[self.member]

    @property
    def freed(self) -> FreedCapacity:
        """The room that it would leave."""
        return FreedCapacity(self.node, dict(self.gang.pod_set.requests))


# Where the gang that waits would be placed if these were gone.
TrialPlacement = Callable[[Iterable[Victim]], Placement | None]


@dataclass(frozen=True, slots=True)
class VictimSelection:
    """Who goes, and where the gang that waits then comes."""

    victims: Sequence[Victim]
    placement: Placement


def select_victims(
    view: ClusterView,
    least: Sequence[PodSet],
    candidates: Sequence[ElasticGang],
    ending: Sequence[FreedCapacity],
    trial: TrialPlacement,
) -> VictimSelection | None:
    """`least` is all that is to be placed; `trial` places it with `ending` gone too. None if there is no way."""
    if not candidates or not _is_enough_in_all(view, least, candidates, ending):
        return None
    line = _by_policy(candidates)
    found = _shortest(line, trial)
    if found is None:
        found = _other_ways(view, least, candidates, ending, trial)
    return None if found is None else _spared(view, least, ending, found, trial)


def _by_policy(candidates: Iterable[ElasticGang]) -> list[Victim]:
    """All that may go, one after another from whoever is furthest above its minimum then."""
    heap = [(each.priority, -each.surplus_ratio(len(each.nodes)), each.key, 0, each) for each in candidates]
    heapq.heapify(heap)
    leavers = {each.key: each.removal_order() for each in candidates}
    line: list[Victim] = []
    while heap:
        _, _, key, gone, gang = heapq.heappop(heap)
        line.append(Victim(gang, leavers[key][gone]))
        gone += 1
        if gone < gang.removable_count():
            heapq.heappush(heap, (gang.priority, -gang.surplus_ratio(len(gang.nodes) - gone), key, gone, gang))
    return line


def _shortest(line: Sequence[Victim], trial: TrialPlacement) -> VictimSelection | None:
    """The shortest beginning that is enough. Mostly few are, and more take longer to try: so by doubling."""
    low, high = 0, min(1, len(line))
    placement = trial(line[:high])
    while placement is None:
        if high == len(line):
            return None
        low, high = high + 1, min(2 * high, len(line))
        placement = trial(line[:high])
    while low < high:
        middle = (low + high) // 2
        found = trial(line[:middle])
        if found is None:
            low = middle + 1
        else:
            high, placement = middle, found
    return VictimSelection(line[:high], placement)


def _is_enough_in_all(
    view: ClusterView, least: Sequence[PodSet], candidates: Iterable[ElasticGang], ending: Iterable[FreedCapacity]
) -> bool:
    """Whether what is free, and what would be, is as much as is needed, resource by resource."""
    lacking = total_requests(least, [each.count for each in least])
    for constraint in {each.node_filter for each in least}:
        for key, group in view.candidates(constraint).groups.items():
            _subtract(lacking, key, len(group))
    for each in ending:
        _subtract(lacking, each.amounts.items(), 1)
    for gang in candidates:
        _subtract(lacking, gang.pod_set.requests, gang.removable_count())
    return all(value <= 0 for value in lacking.values())


def _subtract(lacking: dict[str, int], amounts: Iterable[tuple[str, int]], times: int) -> None:
    for name, value in amounts:
        if value > 0 and name in lacking:
            lacking[name] -= value * times


# The other lines


def _other_ways(
    view: ClusterView,
    least: Sequence[PodSet],
    candidates: Sequence[ElasticGang],
    ending: Sequence[FreedCapacity],
    trial: TrialPlacement,
) -> VictimSelection | None:
    """For what the policy's own order does not find."""
    everybody = [Victim(gang, member) for gang in candidates for member in gang.removal_order()]
    if trial(everybody) is None:
        return None
    found = _shortest(_node_by_node(view, least, candidates, ending), trial)
    if found is not None:
        return found
    budget = min(_SEARCHED_PLACEMENTS, _SEARCHED_NODES // max(len(view.node_infos), 1))
    return _Search(candidates, trial, budget).find(0, [])


def _node_by_node(
    view: ClusterView, least: Sequence[PodSet], candidates: Iterable[ElasticGang], ending: Sequence[FreedCapacity]
) -> list[Victim]:
    """No more from each gang than it may lose."""
    by_node: dict[str, list[Victim]] = {}
    for gang in candidates:
        for member in gang.removal_order():
            victim = Victim(gang, member)
            by_node.setdefault(victim.node, []).append(victim)
    with_all = WhatIfView(view, [*ending, *(each.freed for some in by_node.values() for each in some)])

    def gain(node: str) -> float:
        room = with_all.node_infos.get(node)
        if room is None:
            return 0.0
        share = max(min(each.capacity(room.free), each.count) / max(each.count, 1) for each in least)
        return share / len(by_node[node])

    left = {gang.key: gang.removable_count() for gang in candidates}
    line: list[Victim] = []
    for node in sorted(by_node, key=lambda node: (-gain(node), node)):
        for victim in by_node[node]:
            if left[victim.gang.key]:
                left[victim.gang.key] -= 1
                line.append(victim)
    return line


class _Search:
    """As many from every gang as it may lose, in all ways, gang by gang. Used once."""

    def __init__(self, candidates: Sequence[ElasticGang], trial: TrialPlacement, budget: int) -> None:
        self._candidates = candidates
        self._trial = trial
        self._budget = budget

    def find(self, index: int, chosen: list[Victim]) -> VictimSelection | None:
        self._budget -= 1
        if self._budget < 0:
            return None
        rest = [Victim(gang, member) for gang in self._candidates[index:] for member in gang.removal_order()]
        placement = self._trial([*chosen, *rest])
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
    """So many from each node: which of those on one node go makes no difference."""
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


# Sparing


def _spared(
    view: ClusterView,
    least: Sequence[PodSet],
    ending: Sequence[FreedCapacity],
    found: VictimSelection,
    trial: TrialPlacement,
) -> VictimSelection:
    """Without those that are not needed; the last in the line are spared first."""
    victims = _used(view, least, ending, found)
    placement = trial(victims)
    if placement is None:
        # Packing is not exact for gangs of several kinds: what it finds in more room it may miss in less.
        victims, placement = list(found.victims), found.placement
    for victim in list(reversed(victims))[:_SPARED_ONE_BY_ONE]:
        others = [each for each in victims if each is not victim]
        without = trial(others)
        if without is not None:
            victims, placement = others, without
    return VictimSelection(victims, placement)


def _used(
    view: ClusterView, least: Sequence[PodSet], ending: Sequence[FreedCapacity], found: VictimSelection
) -> list[Victim]:
    """Those whose room the placement takes."""
    left = _left_over(view, least, ending, found)
    kept: list[Victim] = []
    for victim in reversed(found.victims):
        room = left.get(victim.node)
        amounts = victim.gang.pod_set.requests
        if room is None or all(room.get(name, 0) >= value for name, value in amounts):
            if room is not None:
                for name, value in amounts:
                    room[name] = room.get(name, 0) - value
        else:
            kept.append(victim)
    return kept[::-1]


def _left_over(
    view: ClusterView, least: Sequence[PodSet], ending: Sequence[FreedCapacity], found: VictimSelection
) -> dict[str, dict[str, int]]:
    """What is left on the nodes of the placement once it is there."""
    supposed = WhatIfView(view, [*ending, *(each.freed for each in found.victims)])
    amounts = {each.name: each.requests for each in least}
    left = {node: dict(supposed.node_infos[node].free) for node in set(found.placement.node_of.values())}
    for member, node in found.placement.node_of.items():
        for name, value in amounts[kind_of(member)]:
            left[node][name] = left[node].get(name, 0) - value
    return left
