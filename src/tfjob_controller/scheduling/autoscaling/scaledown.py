"""Who gives members away so that a gang which waits can start; see `scaling`.

The head of the queue is the first gang that does not rest after a failed attempt. Once it has waited long enough:

1. if it fits as soon as all that is ending has ended, nobody is asked for anything;
2. else, if it fits once those have followed who are asked already, they go on being asked, but none that is not needed;
3. else a plan is made anew (victims.py); if none lets all of its least start, nobody is asked.

While a shrink is under way for a gang, which is seen from those who are asked, or were resized since it had waited long
enough, its nodes are kept for it. It stays the one it is for, though a gang of a higher priority comes meanwhile and is
the head: where nobody has given anything yet until that one has waited as long, else until it has started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
)
from tfjob_controller.scheduling.autoscaling.victims import TrialPlacement, Victim, VictimSelection, select_victims
from tfjob_controller.scheduling.clusterview import ClusterView, WhatIfView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement, place
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of
from tfjob_controller.scheduling.queue import NominatedNodes, QueuedGang

# How long room that was given for a gang is owed to it: pods have a grace period to end in.
_OWED = timedelta(seconds=300)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Head:
    """Who waits, the least of each kind of its members, and when it has waited long enough."""

    queued: QueuedGang
    least: tuple[PodSet, ...]
    entitled: datetime

    @property
    def key(self) -> str:
        return self.queued.key

    @property
    def priority(self) -> int:
        return self.queued.gang.spec.priority


def plan_shrink(
    view: ClusterView,
    waiting: Sequence[QueuedGang],
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    ending: Sequence[FreedCapacity],
    waited_at: datetime | None,
) -> ResizePlan:
    """`waiting` is in order, and only of gangs that an empty cluster could take."""
    # Until its status says since when it waits, the age of a gang is that of its creation, which is known to the second
    # only: a wish for it would be withdrawn, and its room lost to others, as soon as the status says another moment.
    waiting = [each for each in waiting if each.gang.status.queued_time]
    first, head = _heads(waiting, now, policy)
    due = None if first is None or first.entitled <= now else first.entitled
    if head is None:
        return ResizePlan(recheck_time=due)
    owed = _owed(waiting, running, now, policy, waited_at)
    if owed is not None and owed.key != head.key and (placement := _trial(view, owed, ending, policy)(())):
        return ResizePlan(nominated=_kept(owed, placement, running), recheck_time=due)
    trial = _trial(view, head, ending, policy)
    asked = _asked(running, head)
    placement = trial(())
    if placement is not None:
        is_under_way = bool(asked) or _have_given(running, head)
        return ResizePlan(nominated=_kept(head, placement, running) if is_under_way else None, recheck_time=due)
    found = _needed(asked, trial)
    if found is None and first is head:
        found = select_victims(view, head.least, _candidates(running, head), ending, trial)
    if found is None:
        return ResizePlan(recheck_time=due)
    return ResizePlan(_resizes(found.victims, head, now), _kept(head, found.placement, running), due)


def _heads(
    waiting: Iterable[QueuedGang], now: datetime, policy: AutoscalingPolicy
) -> tuple[_Head | None, _Head | None]:
    """The head of the queue, and the first that has waited long enough."""
    first: _Head | None = None
    for each in waiting:
        if first is not None and _entitled(each, policy) > now:
            continue
        head = _head(each, now, policy)
        first = first or head
        if head is not None and head.entitled <= now:
            return first, head
    return first, None


def _head(queued: QueuedGang, now: datetime, policy: AutoscalingPolicy) -> _Head | None:
    """None for one that rests, or that nobody understands."""
    least = None if queued.is_backing_off(now) else _least(queued)
    return None if least is None else _Head(queued, least, _entitled(queued, policy))


def _owed(
    waiting: Iterable[QueuedGang],
    running: Iterable[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    waited_at: datetime | None,
) -> _Head | None:
    """For whom room was given lately, if none that had to wait has started since."""
    moments = (each.last_resize_time for each in running if each.last_resize_time is not None)
    given = max((each for each in moments if abs(now - each) < _OWED), default=None)
    if given is None or (waited_at is not None and waited_at >= given):
        return None
    first = next((each for each in waiting if _entitled(each, policy) <= given and not each.is_backing_off(now)), None)
    return None if first is None else _head(first, now, policy)


def _least(queued: QueuedGang) -> tuple[PodSet, ...] | None:
    try:
        return tuple(each.with_count(each.min_count) for each in pod_sets_of(queued.gang.spec))
    except ValueError:
        return None


def _entitled(queued: QueuedGang, policy: AutoscalingPolicy) -> datetime:
    try:
        return queued.since + timedelta(seconds=policy.scale_down_after_seconds)
    except OverflowError:
        # Only a hand writes such times.
        return _END_OF_TIME


def _trial(
    view: ClusterView, head: _Head, ending: Sequence[FreedCapacity], policy: AutoscalingPolicy
) -> TrialPlacement:
    def placement(gone: Iterable[Victim]) -> Placement | None:
        supposed = WhatIfView(view, [*ending, *(each.freed for each in gone)])
        found = place(supposed, head.least, policy.topology_keys)
        return found if isinstance(found, Placement) else None

    return placement


def _have_given(running: Iterable[ElasticGang], head: _Head) -> bool:
    """Whether gangs were resized since it had waited long enough, or are about to be: then it was for this one."""
    return any(
        len(each.nodes) > each.count or (each.last_resize_time is not None and each.last_resize_time >= head.entitled)
        for each in running
    )


def _candidates(running: Iterable[ElasticGang], head: _Head) -> list[ElasticGang]:
    return [each for each in running if each.is_resizable and each.priority <= head.priority and each.removable_count()]


def _asked(running: Iterable[ElasticGang], head: _Head) -> list[ElasticGang]:
    """Those that were asked for less, and have not followed, by name."""
    asked = [each for each in _candidates(running, head) if each.is_shrinking and _is_sound(each)]
    return sorted(asked, key=lambda each: each.key)


def _is_sound(asked: ElasticGang) -> bool:
    """Whether what it was asked for could be asked now: statuses are edited by hand, and members come and go."""
    leaving = set(asked.leaving)
    is_possible = leaving <= set(asked.removal_order()) and 0 < len(leaving) <= asked.removable_count()
    return is_possible and len(asked.nodes) - len(leaving) == asked.target


def _needed(asked: Sequence[ElasticGang], trial: TrialPlacement) -> VictimSelection | None:
    """Of those who are asked already all that are needed; None if they are not enough."""
    victims = [Victim(gang, member) for gang in asked for member in gang.leaving]
    placement = trial(victims) if victims else None
    if placement is None:
        return None
    for gang in asked:
        others = [each for each in victims if each.gang is not gang]
        without = trial(others) if others else None
        if without is not None:
            victims, placement = others, without
    return VictimSelection(victims, placement)


def _kept(head: _Head, placement: Placement, running: Iterable[ElasticGang]) -> NominatedNodes:
    nodes = frozenset(placement.node_of.values())
    if not _have_given(running, head):
        return NominatedNodes(head.key, nodes)
    amounts = {each.name: each.requests for each in head.least}
    given: dict[str, dict[str, int]] = {node: {} for node in nodes}
    for member, node in placement.node_of.items():
        for name, value in amounts[kind_of(member)]:
            given[node][name] = given[node].get(name, 0) + value
    return NominatedNodes(head.key, nodes, given)


def _resizes(victims: Iterable[Victim], head: _Head, now: datetime) -> tuple[ResizeRequest, ...]:
    """By name of the gang."""
    by_gang: dict[str, list[Victim]] = {}
    for each in victims:
        by_gang.setdefault(each.gang.key, []).append(each)
    return tuple(_resize(by_gang[key], head, now) for key in sorted(by_gang))


def _resize(victims: Sequence[Victim], head: _Head, now: datetime) -> ResizeRequest:
    gang = victims[0].gang
    leaving = gang.index_order(each.member for each in victims)
    target = len(gang.nodes) - len(leaving)
    room = f"room for {head.key}, waiting "
    is_said = gang.reason.startswith(room) and (gang.target, gang.leaving) == (target, leaving)
    reason = gang.reason if is_said else f"{room}{int(head.queued.waiting_seconds(now))} s"
    return ResizeRequest(gang.key, gang.kind, target, leaving, reason)
