"""When a waiting gang may start: what is free on each node once the jobs there end, without what gangs ahead take.

Gangs are planned in the order of the queue. A gang behind another one gets no capacity that the other could use
(docs/gang-scheduling.md), so its start is unknown if that one's is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.common.quantity import PODS, amount_from
from tfjob_controller.api.gang import Gang
from tfjob_controller.client.jobends import DELETION, ESTIMATE, LIMIT, JobEnds
from tfjob_controller.client.usage import Amounts, HeldCapacity
from tfjob_controller.scheduling.packing import PackingStep, group_nodes, pack
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of

# The least certain basis of several.
_BASES = (DELETION, LIMIT, ESTIMATE)


@dataclass(frozen=True, slots=True)
class _Release:
    """What a job frees on a node when it ends."""

    time: datetime
    basis: str
    node: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A gang ahead in the queue: the resources and nodes that it could use, and its start if that is known."""

    resources: frozenset[str]
    nodes: frozenset[str]
    start: datetime | None
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """`is_behind`: a gang ahead, whose start is unknown, comes first. Otherwise no `time` means none is known."""

    time: datetime | None = None
    basis: str = ""
    is_behind: bool = False


class StartPlan:
    """The starts of gangs, which are added in the order of the queue. For a viewer who may list nodes."""

    def __init__(self, capacity: HeldCapacity, ends: JobEnds, now: datetime) -> None:
        self._now = now
        self._nodes = capacity.nodes or ()
        self._free = {node.metadata.name: _amounts(node.status.allocatable) for node in self._nodes}
        self._releases: list[_Release] = []
        self._ahead: list[_Ahead] = []
        for holding in capacity.holdings:
            if holding.node not in self._free:
                continue
            _add(self._free[holding.node], holding.amounts, -1)
            key = ends.key_of(holding)
            end = ends.end_of(key) if key is not None else None
            if end is not None and end.time is not None:
                self._releases.append(_Release(end.time, end.basis, holding.node, holding.amounts))
        self._releases.sort(key=lambda release: release.time)

    def add(self, gang: Gang) -> Planned:
        try:
            pod_sets = [each.with_count(each.min_count) for each in pod_sets_of(gang.spec)]
        except ValueError:  # the CRD allows quantities that are none
            return Planned()
        accepts = {
            node.metadata.name: tuple(not each.node_filter.rejection(node) for each in pod_sets) for node in self._nodes
        }
        accepts = {name: accepted for name, accepted in accepts.items() if any(accepted)}
        resources = frozenset(name for each in pod_sets for name, _ in each.requests) - {PODS}
        first = [each for each in self._ahead if each.resources & resources and each.nodes & accepts.keys()]
        if any(each.start is None for each in first):
            planned = Planned(is_behind=True)
        else:
            planned = self._earliest(pod_sets, accepts, first)
        self._ahead.append(_Ahead(resources, frozenset(accepts), planned.time, planned.basis))
        return planned

    def _earliest(
        self, pod_sets: Sequence[PodSet], accepts: Mapping[str, tuple[bool, ...]], first: Sequence[_Ahead]
    ) -> Planned:
        earliest = max((each.start for each in first if each.start is not None), default=self._now)
        ends = {each.time for each in self._releases if each.node in accepts and each.time > earliest}
        moments = sorted({earliest, *ends})

        def steps(moment: datetime) -> list[PackingStep] | None:
            return pack(group_nodes(self._nodes_at(moment, accepts)), pod_sets)

        # What is free grows with time.
        if steps(moments[-1]) is None:
            return Planned()
        index = bisect_left(moments, True, hi=len(moments) - 1, key=lambda moment: steps(moment) is not None)
        moment = moments[index]
        for step in steps(moment) or ():
            for count, each in zip(step.counts, pod_sets, strict=True):
                _add(self._free[step.node], dict(each.requests), -count)
        bases = [each.basis for each in self._releases if each.time <= moment and each.node in accepts]
        return Planned(moment, least_certain([*bases, *(each.basis for each in first)]))

    def _nodes_at(
        self, moment: datetime, accepts: Mapping[str, tuple[bool, ...]]
    ) -> Iterable[tuple[tuple[bool, ...], Amounts, str]]:
        free = {name: dict(self._free[name]) for name in accepts}
        for release in self._releases:
            if release.time <= moment and release.node in free:
                _add(free[release.node], release.amounts, 1)
        return [(accepted, free[name], name) for name, accepted in accepts.items()]


def least_certain(bases: Iterable[str]) -> str:
    """The least certain basis of several; empty for none."""
    return max(filter(None, bases), key=_BASES.index, default="")


def _amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    return {resource: amount_from(resource, text) for resource, text in quantities.items()}


def _add(total: dict[str, int], amounts: Amounts, factor: int) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + factor * amount
