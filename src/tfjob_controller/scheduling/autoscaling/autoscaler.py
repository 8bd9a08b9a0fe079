"""Which running gangs should have fewer members or more: the rules of autoscaling. Pure; live and simulated alike.

Theory of operation. `plan_resizes` says at each moment which wishes should stand, all of them; a wish that stands
already is among them as long as it holds, and one that is not among them is to be withdrawn. Nothing is remembered:
what is under way is seen from the gangs themselves (`Elastic.target`, `leaving`, `last_resize`) and from the room that
will come free by itself (`Ending`). A plan that a crash has interrupted is therefore found again.

*Shrink* (shrinking.py): for the first gang of the queue, once it has waited `scale_down_after_seconds`, running gangs
give members away, if that lets all of its least start; all or nothing. From the decision until it has started the nodes
of its planned placement are kept for it (`Kept`): nobody else may be placed there, whatever its priority.

*Grow* (growing.py): while nobody waits, and after `scale_up_after_seconds` without a resize or a gang that had waited,
one gang is given one member more.

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
    ending: Sequence[FreedCapacity] = (),
    waited_at: datetime | None = None,
) -> ResizePlan:
    """To be asked before the queue is decided on, since it says what is kept for whom (`decide(..., kept=)`).

    `queue` is in order (`queue.in_order`), without gangs that could not run on an empty cluster. `running` are all
    elastic gangs that are bound, also those that may not be resized now. `ending` is room of pods that are on their way
    out, also of gangs that have ended; `waited_at` when a gang was last admitted that had had to wait.
    """
    if not running:
        return ResizePlan()
    waiting = [each for each in queue if each.gang.status.phase != UNSCHEDULABLE]
    if waiting:
        return plan_shrink(view, waiting, running, now, policy, ending, waited_at)
    return plan_growth(view, running, now, policy, waited_at)


def plan_growth(
    view: ClusterView,
    running: Sequence[ElasticGang],
    now: datetime,
    policy: AutoscalingPolicy,
    waited_at: datetime | None,
) -> ResizePlan:
    """While no gang waits: the highest priority first, then whoever is least above its minimum, then by name.

    A gang that was asked already, and has not followed, goes on being asked while it fits, and nobody else is.
    """
    asked = [each for each in running if each.is_growing and each.is_resizable]
    found = _first(view, asked, lambda each: each.target)
    if found:
        return ResizePlan(found)
    may_grow = [each for each in running if each.is_resizable and each.count < each.max_members]
    if not may_grow:
        return ResizePlan()
    after = timedelta(seconds=policy.scale_up_after_seconds)
    quiet = _latest([waited_at, *(each.last_resize_time for each in running)], now, after)
    if quiet is not None:
        return ResizePlan(recheck_time=quiet + after)
    lacking = [each for each in running if len(each.nodes) < each.count]
    if _first(view, lacking, lambda each: each.count):
        # Members that are asked for already, and fit, come first: they are placed in a moment.
        return ResizePlan()
    young = [_latest([each.bound_time], now, after) for each in may_grow]
    rested = [each for each, moment in zip(may_grow, young, strict=True) if moment is None]
    found = _first(view, rested, lambda each: each.count + 1)
    due = min((moment for moment in young if moment is not None), default=None)
    return ResizePlan(found, recheck_time=None if found or due is None else due + after)


def _latest(moments: Iterable[datetime | None], now: datetime, after: timedelta) -> datetime | None:
    """The latest that `after` has not passed since; what another clock, or a hand, put far ahead is none."""
    return max((each for each in moments if each is not None and abs(now - each) < after), default=None)


def _first(
    view: ClusterView, gangs: Iterable[ElasticGang], target: Callable[[ElasticGang], int]
) -> tuple[ResizeRequest, ...]:
    """The first of which one more fits."""
    hopeless: set[PodSet] = set()
    for each in sorted(gangs, key=lambda each: (-each.priority, each.surplus_ratio(each.count), each.key)):
        if each.pod_set in hopeless:
            continue
        if find_member_node(view, each.pod_set, near=each.preferred_nodes) is not None:
            return (ResizeRequest(each.key, each.kind, target(each), reason=FREE_CAPACITY),)
        hopeless.add(each.pod_set)
    return ()
