"""How long gangs wait or are partly bound, for a scrape. It is apart from the loop because any thread may call it.

Theory of operation. Nothing is counted as it happens. The Gangs record since when they wait, their pods show which
members are bound, and the last pass's decisions show whether there was capacity. A scrape therefore also shows what the
loop should have done and did not.

Threads: any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, WAITING, Gang, placed_nodes
from tfjob_controller.gangscheduler.status.lifecycle import is_bound_member, pods_by_member
from tfjob_controller.scheduling.decisions import HELD_BACK, Admit, Decision, Unschedulable, queue_order
from tfjob_controller.util.timestamps import parse_time_or_none

# Whether a waiting gang fits now. Held: the capacity is kept for a gang ahead of it. Unknown: no pass has decided.
FITS = YES, HELD, NO, UNKNOWN = "yes", "held", "no", "unknown"


def waiting_gangs(gangs: Iterable[Gang], decisions: Iterable[Decision], now: datetime) -> Iterator[tuple[str, float]]:
    """Yields for each waiting gang one of `FITS` and the seconds that it has waited."""
    known = {each.gang_key: _fits(each) for each in decisions}
    waiting = (each for each in gangs if each.status.phase in ("", WAITING) and not each.metadata.deletion_timestamp)
    for queued in queue_order(waiting):
        yield known.get(queued.key, UNKNOWN), queued.waiting_seconds(now)


def partly_bound_seconds(
    gangs: Iterable[Gang], pods_of: Callable[[Gang], Iterable[ScheduledPod]], now: datetime
) -> Iterator[float]:
    """Yields the seconds since admission of each gang of which some members are bound and others are not."""
    for gang in gangs:
        since = parse_time_or_none(gang.status.admitted_time)
        if gang.status.phase == ADMITTED and since is not None and _is_partly_bound(gang, pods_of(gang)):
            yield max((now - since).total_seconds(), 0.0)


def _fits(decision: Decision) -> str:
    if isinstance(decision, Admit):
        return YES
    if isinstance(decision, Unschedulable) or not decision.may_fit:
        return NO
    return HELD if decision.message == HELD_BACK else YES


def _is_partly_bound(gang: Gang, pods: Iterable[ScheduledPod]) -> bool:
    members = pods_by_member(gang, pods)
    return len({is_bound_member(members, member) for member in placed_nodes(gang.status)}) > 1
