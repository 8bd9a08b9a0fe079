"""A gang's members, compiled for placing: what each kind of pod takes, what it asks of a node, how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfjob_controller.api.gang import GangSpec, Member
from tfjob_controller.api.podrequests import Amounts, amounts_of
from tfjob_controller.scheduling.nodefilter import NodeFilter, node_filter_of


@dataclass(frozen=True, slots=True)
class PodSet:
    """Like pods: between `least` and `count` of them, each taking `amounts`."""

    name: str
    count: int
    min_count: int
    requests: tuple[tuple[str, int], ...]
    node_filter: NodeFilter

    def with_count(self, count: int) -> PodSet:
        return replace(self, count=count, min_count=min(self.min_count, count))

    def capacity(self, free: Amounts) -> int:
        """How many of these pods this room can take."""
        # A plain loop: nothing here runs more often.
        least = -1
        for name, amount in self.requests:
            fits = free.get(name, 0) // amount
            if fits <= 0:
                return 0
            if least < 0 or fits < least:
                least = fits
        return least


def pod_set_of(member: Member, least: int | None = None) -> PodSet:
    """The demand of one member of a Gang; a quantity that is none raises ValueError."""
    count = max(member.count, 0)
    amounts = tuple(sorted(amounts_of(member).items()))
    least = count if least is None else max(0, min(least, count))
    return PodSet(member.name, count, least, amounts, node_filter_of(member))


def pod_sets_of(spec: GangSpec) -> tuple[PodSet, ...]:
    """The demands of a gang, in the order of its members; a quantity that is none raises ValueError.

    A gang starts with one pod at least: where the least of all its members is none, the first of them needs one.
    """
    demands = tuple(pod_set_of(member, spec.min_members.get(member.name)) for member in spec.members)
    first = next((each for each in demands if each.count), None)
    if first is None or any(each.min_count for each in demands):
        return demands
    return tuple(replace(each, min_count=1) if each is first else each for each in demands)


def valid_pod_sets_of(spec: GangSpec) -> tuple[PodSet, ...]:
    """The same of a gang that is placed already, whose spec may have been changed to nonsense since.

    Without the members that ask for it: their pods count with what they really take, once they are there.
    """
    return tuple(demand for member in spec.members if (demand := _demand_or_none(member)) is not None)


def _demand_or_none(member: Member) -> PodSet | None:
    try:
        return pod_set_of(member)
    except ValueError:
        return None


def requests_by_kind(demands: Iterable[PodSet]) -> dict[str, Mapping[str, int]]:
    """What a pod of each member takes: `ClusterView.reserve` wants it so."""
    return {each.name: dict(each.requests) for each in demands}


def total_requests(demands: Sequence[PodSet], counts: Sequence[int]) -> dict[str, int]:
    """What so many of each take together."""
    total: dict[str, int] = {}
    for demand, count in zip(demands, counts, strict=True):
        for name, amount in demand.requests:
            total[name] = total.get(name, 0) + amount * count
    return total
