"""Which running gangs should shrink or grow: the entry point of the autoscaling rules. Pure; live and simulated alike.

Theory of operation. `plan_resizes` returns all resize requests that should stand at a moment: one that stands already
is among them as long as it holds, and one that is not among them is to be withdrawn. Nothing is remembered: requests
under way are seen from the gangs (`ElasticGang.target`, `leaving`, `last_resize_time`) and from the capacity that will
be freed (`FreedCapacity`), so a plan that a crash has interrupted is found again.

*Shrink* (scaledown.py): for the head of the queue, once it has waited `scale_down_after_seconds`, running gangs give up
members, if its whole minimum can then start; all or nothing. From that decision until it has started the nodes of its
planned placement are nominated for it: no other gang may be placed there, whatever its priority.

*Grow* (below): while no gang is pending, and after `scale_up_after_seconds` without a resize or an admission that had
to wait, one gang grows by one member.

Threads: as the view's. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from tfjob_controller.api.gang import UNSCHEDULABLE
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
)
from tfjob_controller.scheduling.autoscaling.scaledown import plan_shrink
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import find_member_node
from tfjob_controller.scheduling.podsets import PodSet
from tfjob_controller.scheduling.queue import QueuedGang

FREE_CAPACITY = "the cluster has room"


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
    """Returns the plan. Call it before the queue is decided on: it says which nodes are nominated for a gang.

    `queue` is in queue order, without gangs that could not run on an empty cluster. `running` are all elastic gangs
    that are bound, including those that may not be resized now. `freed` is the capacity of terminating pods, also of
    gangs that have ended. `waited_at` is when a gang was last admitted that had to wait.
    """
    if not running:
        return ResizePlan()
    waiting = [each for each in queue if each.gang.status.phase != UNSCHEDULABLE]
    if waiting:
        return plan_shrink(view, waiting, running, now, policy, freed, waited_at)
    return plan_growth(view, running, now, policy, waited_at)


def plan_growth(
    view: ClusterView,
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    waited_at: datetime | None,
) -> ResizePlan:
    """Returns the plan while no gang is pending: one gang grows, by one member.

    The gang of the highest priority comes first, then the one least above its minimum, then the first by name. While a
    gang has not followed a request to grow, and still fits, the request stands and no other gang gets one.
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
    return max((each for each in moments if each is not None and abs(now - each) < after), default=None)


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
