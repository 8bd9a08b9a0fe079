"""A gang whose size may be changed while it runs, as the rules of scaling see it.

A kind of member is elastic if the Gang names it both in `minMembers` and in `maxMembers`; of several the first is the
one that is resized. Its member 0 stays as long as the gang does, and so do the members of all other kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.gang import Gang, GangSpec, GangStatus, Member, kind_of, placed_nodes, wanted_members
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.podsets import PodSet, pod_set_of
from tfjob_controller.scheduling.queue import NominatedNodes
from tfjob_controller.util.timestamps import parse_time_or_none

# Whoever else a gang has, its workers want to be near these.
PARAMETER_SERVERS = "ps"


@dataclass(frozen=True, slots=True)
class ElasticGang:
    """One elastic kind of members of a bound gang.

    `demand` is that of one member. `nodes` are the present nodes of those that have one; `count` is how many the gang
    asks for now, between `least` and `most`. `anchors` are nodes where members would rather be: those of the gang's
    parameter servers, or, where it has none, of its members of other kinds.

    `may_resize` is false while it is being resized, and from when a first member has ended on. `target` and `leaving`
    are what it has been asked for already, with `reason`; without that `target` is `count`.
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
    target: int = 0
    leaving: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_shrinking(self) -> bool:
        """Whether it has been asked for less, and has not followed yet."""
        return self.target < self.count

    @property
    def is_growing(self) -> bool:
        """Whether it has been asked for more, and has not followed yet."""
        return self.target > self.count

    def removal_order(self) -> Sequence[str]:
        """The members that may go, those first that go first: off the anchors, then those of the highest index."""
        may_go = [member for member in self.nodes if _index(member)]
        may_go.sort(key=lambda member: (self.nodes[member] in self.preferred_nodes, -_index(member)))
        return may_go

    def index_order(self, members: Iterable[str]) -> tuple[str, ...]:
        """These, in order."""
        return tuple(sorted(members, key=_index))

    def removable_count(self) -> int:
        """How many of its members may go in all."""
        spare = len(self.nodes) - self.min_members
        # Where gangs wait most of those that run are at their least, and this is asked of all of them in each pass.
        if spare <= 0:
            return 0
        return min(
            spare, len(self.nodes) - sum(1 for member in self.nodes if member.endswith("0") and not _index(member))
        )

    def surplus_ratio(self, members: int) -> float:
        """With so many members: how far it is above its minimum, from 0 to 1."""
        return (
            (members - self.min_members) / (self.max_members - self.min_members)
            if self.max_members > self.min_members
            else 0.0
        )


def elastic_kind(spec: GangSpec) -> Member | None:
    """The kind of member that may be resized; None if none may."""
    return next(
        (each for each in spec.members if each.name in spec.min_members and each.name in spec.max_members), None
    )


def elastic_gang_of(gang: Gang, *, is_finishing: bool = False, is_changing: bool = False) -> ElasticGang | None:
    """None for a gang that is never resized by load.

    `is_finishing`: some member has ended, and will not run again. `is_changing`: pods of members that the gang has no
    more are still there, or some of those that it has are not there yet.
    """
    member = elastic_kind(gang.spec)
    demand = None if member is None else _demand(member)
    if member is None or demand is None:
        return None
    status, spec = gang.status, gang.spec
    placed = placed_nodes(status)
    nodes = {each: node for each, node in placed.items() if kind_of(each) == member.name and _index(each) >= 0}
    wanted = {each for each in wanted_members(gang) if kind_of(each) == member.name}
    target = _target(status, spec, member)
    is_over = spec.suspend or gang.metadata.deletion_timestamp is not None
    return ElasticGang(
        key=key_of(gang),
        kind=member.name,
        pod_set=demand,
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
        target=target,
        leaving=status.leaving if target < member.count else (),
        reason=status.target_reason if target != member.count else "",
    )


def _target(status: GangStatus, spec: GangSpec, member: Member) -> int:
    """What it has been asked for; nothing that is out of its limits, which may be others by now, or were edited."""
    target = status.target_members.get(member.name, member.count)
    return target if spec.min_members[member.name] <= target <= spec.max_members[member.name] else member.count


def _demand(member: Member) -> PodSet | None:
    try:
        return pod_set_of(member).with_count(1)
    except ValueError:
        return None


def preferred_nodes(placed: Mapping[str, str], kind: str) -> frozenset[str]:
    """The nodes that members of this kind would rather be on; `placed` is the node of each member of the gang."""
    servers = frozenset(node for member, node in placed.items() if kind_of(member) == PARAMETER_SERVERS)
    return servers or frozenset(node for member, node in placed.items() if kind_of(member) != kind)


def _index(member: str) -> int:
    """-1 of what is no name of a member."""
    index = member.rpartition("-")[2]
    return int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else -1


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """`topology_keys` as for placing: node labels, the widest first."""

    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    topology_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """What a gang should be told: to have `target` members of this kind, without those that are `leaving`."""

    key: str
    kind: str
    target: int
    leaving: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """All wishes that should stand now. `due`: when to ask again at the latest, though nothing has changed."""

    resizes: tuple[ResizeRequest, ...] = ()
    nominated: NominatedNodes | None = None
    recheck_time: datetime | None = None
