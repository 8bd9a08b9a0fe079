"""A gang as the rules of placement and preemption see it.

Its members are compiled for placement: requests, node filter and number of the pods of each. `last_saved_time` says how
much work is lost if it is preempted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tfjob_controller.api.common.podrequests import Amounts, amounts_of
from tfjob_controller.api.gang import Gang, GangSpec, Member
from tfjob_controller.scheduling.nodefilter import NodeFilter, node_filter_of
from tfjob_controller.util.timestamps import parse_time_or_none


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
        """Returns how many of these pods fit into this free capacity. Each requests a place, at least (`pods`)."""
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
    """Returns the pod set of one member of a Gang, of which all are needed if `least` is None.

    Raises ValueError for an invalid quantity.
    """
    count = max(member.count, 0)
    amounts = tuple(sorted(amounts_of(member).items()))
    least = count if least is None else max(0, min(least, count))
    return PodSet(member.name, count, least, amounts, node_filter_of(member))


def pod_sets_of(spec: GangSpec) -> tuple[PodSet, ...]:
    """Returns the pod sets of a gang, in the order of its members. Raises ValueError for an invalid quantity.

    A gang starts with at least one pod: where all minimums are zero, the first pod set needs one.
    """
    pod_sets = tuple(pod_set_of(member, spec.min_members.get(member.name)) for member in spec.members)
    first = next((pod_set for pod_set in pod_sets if pod_set.count), None)
    if first is None or any(pod_set.min_count for pod_set in pod_sets):
        return pod_sets
    return tuple(replace(pod_set, min_count=1) if pod_set is first else pod_set for pod_set in pod_sets)


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
    """Returns what a pod of each pod set requests, as `ClusterView.reserve` expects it."""
    return {pod_set.name: dict(pod_set.requests) for pod_set in pod_sets}


def total_requests(pod_sets: Sequence[PodSet], counts: Sequence[int]) -> dict[str, int]:
    """Returns what `counts` pods of the pod sets request together."""
    total: dict[str, int] = {}
    for pod_set, count in zip(pod_sets, counts, strict=True):
        for name, amount in pod_set.requests:
            total[name] = total.get(name, 0) + amount * count
    return total


def last_saved_time(gang: Gang) -> datetime | None:
    """Returns when a bound gang last saved its work, as reported by its owner, or began; None if neither is known.

    An owner can write any time. One before the gang was bound counts as that moment, so an old one protects nobody; one
    in the future makes the gang the first that is preempted.
    """
    saved = parse_time_or_none(gang.metadata.annotations.checkpoint_time)
    times = (parse_time_or_none(gang.status.bound_time), saved)
    return max((time for time in times if time is not None), default=None)
