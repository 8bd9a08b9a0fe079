"""A gang's members, compiled for placement: requests, node filter and number of each kind of pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfjob_controller.api.common.podrequests import Amounts, amounts_of
from tfjob_controller.api.gang import GangSpec, Member
from tfjob_controller.scheduling.nodefilter import NodeFilter, node_filter_of


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods: between `min_count` and `count` of them, each with the same requests and node filter."""

    name: str
    count: int
    min_count: int
    requests: tuple[tuple[str, int], ...]
    node_filter: NodeFilter

    def with_count(self, count: int) -> PodSet:
        """Returns the same pod set with no more than `count` pods."""
        return replace(self, count=count, min_count=min(self.min_count, count))

    def capacity(self, free: Amounts) -> int:
        """Returns how many of these pods fit into this free capacity."""
        # A plain loop: this is the hottest function of placement.
        least = -1
        for name, amount in self.requests:
            fits = free.get(name, 0) // amount
            if fits <= 0:
                return 0
            if least < 0 or fits < least:
                least = fits
        return least


def pod_set_of(member: Member, least: int | None = None) -> PodSet:
    """Returns the pod set of one member of a Gang. Raises ValueError for an invalid quantity."""
    count = max(member.count, 0)
    amounts = tuple(sorted(amounts_of(member).items()))
    least = count if least is None else max(0, min(least, count))
    return PodSet(member.name, count, least, amounts, node_filter_of(member))


def pod_sets_of(spec: GangSpec) -> tuple[PodSet, ...]:
    """Returns the pod sets of a gang, in the order of its members. Raises ValueError for an invalid quantity.

    A gang starts with at least one pod: where all minimums are zero, the first kind needs one.
    """
    pod_sets = tuple(pod_set_of(member, spec.min_members.get(member.name)) for member in spec.members)
    first = next((each for each in pod_sets if each.count), None)
    if first is None or any(each.min_count for each in pod_sets):
        return pod_sets
    return tuple(replace(each, min_count=1) if each is first else each for each in pod_sets)


def valid_pod_sets_of(spec: GangSpec) -> tuple[PodSet, ...]:
    """Returns the pod sets of an admitted gang, whose spec may have become invalid since.

    Members with invalid quantities are left out: their pods count with their actual requests once they exist.
    """
    return tuple(pod_set for member in spec.members if (pod_set := valid_pod_set_of(member)) is not None)


def valid_pod_set_of(member: Member) -> PodSet | None:
    """Returns the pod set of one member; None for an invalid quantity."""
    try:
        return pod_set_of(member)
    except ValueError:
        return None


def requests_by_kind(pod_sets: Iterable[PodSet]) -> dict[str, Mapping[str, int]]:
    """Returns what a pod of each kind requests, as `ClusterView.reserve` expects it."""
    return {each.name: dict(each.requests) for each in pod_sets}


def total_requests(pod_sets: Sequence[PodSet], counts: Sequence[int]) -> dict[str, int]:
    """Returns what so many pods of each pod set request together."""
    total: dict[str, int] = {}
    for pod_set, count in zip(pod_sets, counts, strict=True):
        for name, amount in pod_set.requests:
            total[name] = total.get(name, 0) + amount * count
    return total
