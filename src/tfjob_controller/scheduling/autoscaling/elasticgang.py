"""The autoscaling rules' view of a running gang whose size may change, and the plans that the rules return.

A kind of member is elastic if the Gang names it both in `minMembers` and in `maxMembers`; of several kinds the first is
resized. Member 0 of the kind stays as long as the gang exists, and so do the members of all other kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.gang import (
    Gang,
    GangSpec,
    GangStatus,
    Member,
    index_of,
    kind_of,
    placed_nodes,
    wanted_members,
)
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.decisions import NominatedNodes
from tfjob_controller.scheduling.podsets import PodSet, last_saved_time, valid_pod_set_of
from tfjob_controller.util.timestamps import parse_time_or_none

# Workers should run near these.
PARAMETER_SERVERS = "ps"


@dataclass(frozen=True, slots=True)
class ElasticGang:
    """The elastic kind of members of a bound gang.

    `pod_set` is that of one member. `nodes` are the nodes of the members that have one; `count` is how many the gang
    has in its spec, between `min_members` and `max_members`. `preferred_nodes` are those of the gang's parameter
    servers or, without any, of its members of other kinds.

    `saved_time` is when its program last saved its work, or began.

    `is_resizable` is false while the gang is being resized, and once one of its members has ended. `target`, `leaving`
    and `reason` are those of the current resize request; without one, `target` equals `count`.
    """

    key: str
    kind: str
    pod_set: PodSet
    nodes: Mapping[str, str]
    min_members: int
    max_members: int
    count: int
    priority: int = 0
    preferred_nodes: frozenset[str] = frozenset()
    is_resizable: bool = True
    bound_time: datetime | None = None
    last_resize_time: datetime | None = None
    saved_time: datetime | None = None
    target: int = 0
    leaving: tuple[str, ...] = ()
    reason: str = ""
    is_indexed: bool = False
    """The pods are those of an Indexed Job: members are removed strictly from the highest index on."""

    @property
    def is_shrinking(self) -> bool:
        """Whether its owner has been requested to shrink it, and has not done so yet."""
        return self.target < self.count

    @property
    def is_growing(self) -> bool:
        """Whether its owner has been requested to grow it, and has not done so yet."""
        return self.target > self.count

    def removal_order(self) -> Sequence[str]:
        """Returns the removable members, first those off the preferred nodes, then those with the highest index.

        Of an indexed kind the preferred nodes do not matter, and only the first members of this order may be removed.
        """
        removable = [member for member in self.nodes if member_index(member)]
        preferred = frozenset[str]() if self.is_indexed else self.preferred_nodes
        removable.sort(key=lambda member: (self.nodes[member] in preferred, -member_index(member)))
        return removable

    def removable_count(self) -> int:
        """Returns how many of its members may be removed in all."""
        spare = len(self.nodes) - self.min_members
        # While gangs are pending most running gangs are at their minimum, and each cycle calls this for all of them.
        if spare <= 0:
            return 0
        fixed = sum(1 for member in self.nodes if member.endswith("0") and not member_index(member))
        return min(spare, len(self.nodes) - fixed)

    def surplus_ratio(self, members: int) -> float:
        """Returns how far `members` is above the gang's minimum, from 0 to 1."""
        span = self.max_members - self.min_members
        return (members - self.min_members) / span if span > 0 else 0.0


def elastic_kind(spec: GangSpec) -> Member | None:
    """Returns the kind of member that may be resized; None if none may."""
    return next(
        (member for member in spec.members if member.name in spec.min_members and member.name in spec.max_members), None
    )


def elastic_gang_of(gang: Gang, *, is_finishing: bool = False, is_changing: bool = False) -> ElasticGang | None:
    """Returns the elastic gang; None if the gang is not elastic.

    `is_finishing`: some member has ended and will not run again. `is_changing`: pods of removed members still exist, or
    pods of added members do not exist yet.
    """
    member = elastic_kind(gang.spec)
    if member is None or (pod_set := valid_pod_set_of(member)) is None:
        return None
    status, spec = gang.status, gang.spec
    placed = placed_nodes(status)
    nodes = {each: node for each, node in placed.items() if kind_of(each) == member.name and member_index(each) >= 0}
    wanted = {each for each in wanted_members(gang) if kind_of(each) == member.name}
    target = _target(status, spec, member)
    is_over = spec.suspend or gang.metadata.deletion_timestamp is not None
    return ElasticGang(
        key=key_of(gang),
        kind=member.name,
        pod_set=pod_set.with_count(1),
        nodes=nodes,
        min_members=spec.min_members[member.name],
        max_members=spec.max_members[member.name],
        count=member.count,
        priority=spec.priority,
        preferred_nodes=preferred_nodes(placed, member.name),
        is_resizable=not (is_over or is_finishing)
        and nodes.keys() <= wanted
        and (target != member.count or not is_changing),
        bound_time=parse_time_or_none(status.bound_time),
        last_resize_time=parse_time_or_none(status.last_resize_time),
        saved_time=last_saved_time(gang),
        target=target,
        leaving=status.leaving if target < member.count else (),
        reason=status.target_reason if target != member.count else "",
        is_indexed=member.indexed,
    )


def _target(status: GangStatus, spec: GangSpec, member: Member) -> int:
    """The requested size. One that is out of the limits, which may have changed or been edited, counts as none."""
    target = status.target_members.get(member.name, member.count)
    return target if spec.min_members[member.name] <= target <= spec.max_members[member.name] else member.count


def preferred_nodes(placed: Mapping[str, str], kind: str) -> frozenset[str]:
    """Returns the nodes near which members of this kind should run; `placed` is the node of each member."""
    servers = frozenset(node for member, node in placed.items() if kind_of(member) == PARAMETER_SERVERS)
    return servers or frozenset(node for member, node in placed.items() if kind_of(member) != kind)


def member_index(member: str) -> int:
    """Returns -1 for an invalid member name."""
    index = index_of(member)
    return -1 if index is None else index


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """`topology_keys` as for placement: node labels, the widest domain first."""

    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    topology_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """A gang should have `target` members of this kind, without those that are `leaving`."""

    key: str
    kind: str
    target: int
    leaving: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """All resize requests that should exist now. `recheck_time`: plan again by then, even if nothing has changed."""

    resizes: tuple[ResizeRequest, ...] = ()
    nominated: NominatedNodes | None = None
    recheck_time: datetime | None = None
