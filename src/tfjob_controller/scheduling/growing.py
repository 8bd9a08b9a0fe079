"""Who grows into a cluster that idles; see `scaling`. One gang at a time, by one member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.elastic import Elastic
from tfjob_controller.scheduling.placement import replace_member
from tfjob_controller.scheduling.resizes import Plan, Resize, ScalePolicy
from tfjob_controller.scheduling.view import ClusterView

ROOM = "the cluster has room"


def grown(
    view: ClusterView, running: Sequence[Elastic], now: datetime, policy: ScalePolicy, waited_at: datetime | None
) -> Plan:
    """While no gang waits: the highest priority first, then whoever is least above its minimum, then by name.

    A gang that was asked already, and has not followed, goes on being asked while it fits, and nobody else is.
    """
    asked = [each for each in running if each.is_growing and each.may_resize]
    found = _first(view, asked, lambda each: each.target)
    if found:
        return Plan(found)
    may_grow = [each for each in running if each.may_resize and each.count < each.most]
    if not may_grow:
        return Plan()
    after = timedelta(seconds=policy.scale_up_after_seconds)
    quiet = _latest([waited_at, *(each.last_resize for each in running)], now, after)
    if quiet is not None:
        return Plan(due=quiet + after)
    lacking = [each for each in running if len(each.nodes) < each.count]
    if _first(view, lacking, lambda each: each.count):
        # Members that are asked for already, and fit, come first: they are placed in a moment.
        return Plan()
    young = [_latest([each.bound_at], now, after) for each in may_grow]
    rested = [each for each, moment in zip(may_grow, young, strict=True) if moment is None]
    found = _first(view, rested, lambda each: each.count + 1)
    due = min((moment for moment in young if moment is not None), default=None)
    return Plan(found, due=None if found or due is None else due + after)


def _latest(moments: Iterable[datetime | None], now: datetime, after: timedelta) -> datetime | None:
    """The latest that `after` has not passed since; what another clock, or a hand, put far ahead is none."""
    return max((each for each in moments if each is not None and abs(now - each) < after), default=None)


def _first(view: ClusterView, gangs: Iterable[Elastic], target: Callable[[Elastic], int]) -> tuple[Resize, ...]:
    """The first of which one more fits."""
    hopeless: set[Demand] = set()
    for each in sorted(gangs, key=lambda each: (-each.priority, each.abundance(each.count), each.key)):
        if each.demand in hopeless:
            continue
        if replace_member(view, each.demand, near=each.anchors) is not None:
            return (Resize(each.key, each.kind, target(each), reason=ROOM),)
        hopeless.add(each.demand)
    return ()
