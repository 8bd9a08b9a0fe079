"""The entry point of the autoscaling rules: plans which running gangs shrink or grow. Pure; live and simulated alike.

Theory of operation. `plan_resizes` returns all resize requests that should exist now: it contains existing requests
that remain valid, and existing requests that it does not contain must be withdrawn. It keeps no state: requests
in progress are read from the gangs (`ElasticGang.target`, `leaving`, `last_resize_time`) and from the capacity that
will be freed (`FreedCapacity`), so a plan continues after a crash.

*Shrink*: for the head of the queue, which is the first gang that does not back off after a failed attempt, running
gangs give up members once it has waited `scale_down_after_seconds`; all or nothing:

1. if it fits as soon as all terminating pods are deleted, no gang shrinks;
2. otherwise, if it fits after the existing requests are executed, these remain, except those that are not needed;
3. otherwise a new plan is made (victims.py); if none lets its whole minimum start, no gang shrinks.

While a shrink is under way for a gang, which is seen from requests, or from resizes since it had waited long enough,
the nodes of its planned placement are nominated for it: no other gang may be placed there, whatever its priority. It
remains the recipient even if a gang of a higher priority becomes the head meanwhile: before any capacity was released
until that one has waited as long, afterwards until it has started.

*Grow*: while no gang is pending, and after `scale_up_after_seconds` without a resize or an admission that had to wait,
one gang grows by one member.

Threads: as the view's. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.api.common.podrequests import add_amounts
from tfjob_controller.api.gang import UNSCHEDULABLE, kind_of
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
    member_index,
)
from tfjob_controller.scheduling.autoscaling.victims import TrialPlacement, Victim, VictimSelection, VictimSelector
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes, QueuedGang
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement, find_member_node, place
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.whatif import WhatIfView

FREE_CAPACITY = "the cluster has free capacity"
# How long released capacity stays nominated for a gang: pods have a grace period.
_RELEASE_TIMEOUT = timedelta(seconds=300)
# How long gangs that should shrink may take, until whole gangs are preempted instead.
_FOLLOW_TIMEOUT = timedelta(seconds=60)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def plan_resizes(
    view: ClusterView,
    queue: Sequence[QueuedGang],
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    *,
    freed: Sequence[FreedCapacity] = (),
    waited_at: datetime | None = None,
) -> ResizePlan:
    """Returns the plan. Call it before the queue is decided on, because it nominates nodes for a gang.

    `queue` is in queue order, without gangs that could not run on an empty cluster. `running` are all elastic gangs
    that are bound, including those that may not be resized now. `freed` is the capacity of terminating pods, also of
    gangs that have ended. `waited_at` is when a gang was last admitted that had to wait.
    """
    if not running:
        return ResizePlan()
    waiting = [each for each in queue if each.gang.status.phase != UNSCHEDULABLE]
    if waiting:
        return _plan_shrink(view, waiting, running, now, policy, freed, waited_at)
    return _plan_growth(view, running, now, policy, waited_at)


def could_shrink_for(
    view: ClusterView,
    queued: QueuedGang,
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    freed: Sequence[FreedCapacity] = (),
) -> bool:
    """Returns whether elastic gangs make room for a waiting gang if they follow resize requests, now or soon.

    A gang for which others should have shrunk for a minute gets no answer but False: their owners do not follow.
    """
    head = _head(queued, now, policy)
    if head is None or now - head.eligible_time > _FOLLOW_TIMEOUT:
        return False
    selector = VictimSelector(view, head.minimum, _candidates(running, head), freed, _trial(view, head, freed, policy))
    return selector.select() is not None


# Growing


def _plan_growth(
    view: ClusterView,
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    waited_at: datetime | None,
) -> ResizePlan:
    """Returns the plan while no gang is pending: one gang grows, by one member.

    The gang of the highest priority comes first, then the one least above its minimum, then the first by name. While a
    gang has not followed a request to grow, and still fits, the request remains and no other gang gets one.
    """
    growing = [each for each in running if each.is_growing and each.is_resizable]
    found = _grow_first(view, growing, lambda each: each.target)
    if found:
        return ResizePlan(found)
    growable = [each for each in running if each.is_resizable and each.count < each.max_members]
    if not growable:
        return ResizePlan()
    after = timedelta(seconds=policy.scale_up_after_seconds)
    disturbed = _latest([waited_at, *(each.last_resize_time for each in running)], now, after)
    if disturbed is not None:
        return ResizePlan(recheck_time=disturbed + after)
    incomplete = [each for each in running if len(each.nodes) < each.count]
    if _grow_first(view, incomplete, lambda each: each.count):
        # Members that are missing and fit come first: they are about to be placed.
        return ResizePlan()
    bound_times = [_latest([each.bound_time], now, after) for each in growable]
    candidates = [each for each, moment in zip(growable, bound_times, strict=True) if moment is None]
    found = _grow_first(view, candidates, lambda each: each.count + 1)
    next_time = min((moment for moment in bound_times if moment is not None), default=None)
    return ResizePlan(found, recheck_time=None if found or next_time is None else next_time + after)


def _latest(moments: Iterable[datetime | None], now: datetime, after: timedelta) -> datetime | None:
    """The latest time that is less than `after` ago. Times far in the future, set by another clock or by hand, are
    ignored.
    """
    return max((moment for moment in moments if moment is not None and abs(now - moment) < after), default=None)


def _grow_first(
    view: ClusterView, gangs: Iterable[ElasticGang], target: Callable[[ElasticGang], int]
) -> tuple[ResizeRequest, ...]:
    """Requests growth for the first gang that can place one more member."""
    failed: set[PodSet] = set()
    for each in sorted(gangs, key=lambda each: (-each.priority, each.surplus_ratio(each.count), each.key)):
        if each.pod_set in failed:
            continue
        if find_member_node(view, each.pod_set, near=each.preferred_nodes) is not None:
            return (ResizeRequest(each.key, each.kind, target(each), reason=FREE_CAPACITY),)
        failed.add(each.pod_set)
    return ()


# Shrinking


@dataclass(frozen=True, slots=True)
class _Head:
    """A pending gang, the minimum of each of its pod sets, and the time from which others shrink for it."""

    queued: QueuedGang
    minimum: tuple[PodSet, ...]
    eligible_time: datetime

    @property
    def key(self) -> str:
        return self.queued.key

    @property
    def priority(self) -> int:
        return self.queued.gang.spec.priority


def _plan_shrink(
    view: ClusterView,
    waiting: Sequence[QueuedGang],
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    freed: Sequence[FreedCapacity],
    waited_at: datetime | None,
) -> ResizePlan:
    """`waiting` is in queue order, and only has gangs that an empty cluster could take."""
    # Until its status has queuedTime, a gang is queued since its creation, which is known to the second only: a
    # request for it would be withdrawn, and its capacity lost to others, as soon as the status has another time.
    waiting = [each for each in waiting if each.gang.status.queued_time]
    first, head = _heads(waiting, now, policy)
    recheck_time = None if first is None or first.eligible_time <= now else first.eligible_time
    if head is None:
        return ResizePlan(recheck_time=recheck_time)
    recipient = _recipient(waiting, running, now, policy, waited_at)
    if recipient is not None and recipient.key != head.key:
        placement = _trial(view, recipient, freed, policy)(())
        if placement is not None:
            return ResizePlan(nominated=_nominate(recipient, placement, running), recheck_time=recheck_time)
    trial = _trial(view, head, freed, policy)
    shrinking = _shrinking_gangs(running, head)
    placement = trial(())
    if placement is not None:
        is_under_way = bool(shrinking) or _is_releasing(running, head)
        nominated = _nominate(head, placement, running) if is_under_way else None
        return ResizePlan(nominated=nominated, recheck_time=recheck_time)
    found = _needed_victims(shrinking, trial)
    if found is None and first is head:
        found = VictimSelector(view, head.minimum, _candidates(running, head), freed, trial).select()
    if found is None:
        return ResizePlan(recheck_time=recheck_time)
    requests = _resize_requests(found.victims, head, now)
    return ResizePlan(requests, _nominate(head, found.placement, running), recheck_time)


def _heads(
    waiting: Iterable[QueuedGang], now: datetime, policy: AutoscalingPolicy
) -> tuple[_Head | None, _Head | None]:
    """Returns the head of the queue, and the first gang that has waited long enough."""
    first: _Head | None = None
    for each in waiting:
        if first is not None and _eligible_time(each, policy) > now:
            continue
        head = _head(each, now, policy)
        first = first or head
        if head is not None and head.eligible_time <= now:
            return first, head
    return first, None


def _head(queued: QueuedGang, now: datetime, policy: AutoscalingPolicy) -> _Head | None:
    """Returns None for a gang that backs off, or whose spec is invalid."""
    if queued.is_backing_off(now):
        return None
    try:
        minimum = tuple(pod_set.with_count(pod_set.min_count) for pod_set in pod_sets_of(queued.gang.spec))
    except ValueError:
        return None
    return _Head(queued, minimum, _eligible_time(queued, policy))


def _recipient(
    waiting: Iterable[QueuedGang],
    running: Iterable[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    waited_at: datetime | None,
) -> _Head | None:
    """Returns the gang for which capacity was released lately, if no gang that had to wait has started since."""
    moments = (each.last_resize_time for each in running if each.last_resize_time is not None)
    released = max((moment for moment in moments if abs(now - moment) < _RELEASE_TIMEOUT), default=None)
    if released is None or (waited_at is not None and waited_at >= released):
        return None
    first = next(
        (each for each in waiting if _eligible_time(each, policy) <= released and not each.is_backing_off(now)), None
    )
    return None if first is None else _head(first, now, policy)


def _eligible_time(queued: QueuedGang, policy: AutoscalingPolicy) -> datetime:
    try:
        return queued.since + timedelta(seconds=policy.scale_down_after_seconds)
    except OverflowError:
        # Such times are only written by hand.
        return _END_OF_TIME


def _trial(view: ClusterView, head: _Head, freed: Sequence[FreedCapacity], policy: AutoscalingPolicy) -> TrialPlacement:
    def placement(removed: Iterable[Victim]) -> Placement | None:
        what_if = WhatIfView(view, [*freed, *(each.freed for each in removed)])
        return place(what_if, head.minimum, policy.topology_keys)

    return placement


def _is_releasing(running: Iterable[ElasticGang], head: _Head) -> bool:
    """Whether capacity was released for it: gangs were resized since it is eligible, or are about to be."""
    return any(
        len(each.nodes) > each.count
        or (each.last_resize_time is not None and each.last_resize_time >= head.eligible_time)
        for each in running
    )


def _candidates(running: Iterable[ElasticGang], head: _Head) -> list[ElasticGang]:
    return [each for each in running if each.is_resizable and each.priority <= head.priority and each.removable_count()]


def _shrinking_gangs(running: Iterable[ElasticGang], head: _Head) -> list[ElasticGang]:
    """Returns the gangs with a request to shrink that they have not followed, by name."""
    shrinking = [
        candidate for candidate in _candidates(running, head) if candidate.is_shrinking and _is_valid(candidate)
    ]
    return sorted(shrinking, key=lambda each: each.key)


def _is_valid(shrinking: ElasticGang) -> bool:
    """Whether the request could be made now: statuses are edited by hand, and members come and go."""
    leaving, order = set(shrinking.leaving), shrinking.removal_order()
    removable = order[: len(leaving)] if shrinking.is_indexed else order
    is_possible = leaving <= set(removable) and 0 < len(leaving) <= shrinking.removable_count()
    return is_possible and len(shrinking.nodes) - len(leaving) == shrinking.target


def _needed_victims(shrinking: Sequence[ElasticGang], trial: TrialPlacement) -> VictimSelection | None:
    """Returns the victims of existing requests that are needed; None if all of them are not enough."""
    victims = [Victim(gang, member) for gang in shrinking for member in gang.leaving]
    placement = trial(victims) if victims else None
    if placement is None:
        return None
    for gang in shrinking:
        others = [victim for victim in victims if victim.gang is not gang]
        without = trial(others) if others else None
        if without is not None:
            victims, placement = others, without
    return VictimSelection(victims, placement)


def _nominate(head: _Head, placement: Placement, running: Iterable[ElasticGang]) -> NominatedNodes:
    nodes = frozenset(placement.node_of.values())
    if not _is_releasing(running, head):
        return NominatedNodes(head.key, nodes)
    amounts = requests_by_kind(head.minimum)
    released: dict[str, dict[str, int]] = {node: {} for node in nodes}
    for member, node in placement.node_of.items():
        add_amounts(released[node], amounts[kind_of(member)])
    return NominatedNodes(head.key, nodes, released)


def _resize_requests(victims: Iterable[Victim], head: _Head, now: datetime) -> tuple[ResizeRequest, ...]:
    """One request for each gang, by name."""
    by_gang: dict[str, list[Victim]] = {}
    for victim in victims:
        by_gang.setdefault(victim.gang.key, []).append(victim)
    return tuple(_resize_request(by_gang[key], head, now) for key in sorted(by_gang))


def _resize_request(victims: Sequence[Victim], head: _Head, now: datetime) -> ResizeRequest:
    gang = victims[0].gang
    leaving = tuple(sorted((victim.member for victim in victims), key=member_index))
    target = len(gang.nodes) - len(leaving)
    prefix = f"capacity for {head.key}, waiting "
    is_unchanged = gang.reason.startswith(prefix) and (gang.target, gang.leaving) == (target, leaving)
    reason = gang.reason if is_unchanged else f"{prefix}{int(head.queued.waiting_seconds(now))} s"
    return ResizeRequest(gang.key, gang.kind, target, leaving, reason)
