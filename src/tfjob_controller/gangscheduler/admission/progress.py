"""Gangs on their way, as a scrape finds them: how long they wait and whether they need to, and who is bound in part.

Theory of operation. Nothing is counted while it happens: the Gangs say since when, their pods who is bound, and the
last pass of the admission loop whether there was room. So it costs something only when it is asked for, and what the
loop should have done but has not is seen too.

Threads: any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, WAITING, Gang, placed_nodes
from tfjob_controller.gangscheduler.status.lifecycle import is_bound_member, pods_by_member
from tfjob_controller.scheduling.decisions import Admit, Decision, Unschedulable
from tfjob_controller.scheduling.messages import HELD_BACK
from tfjob_controller.scheduling.queue import queue_order
from tfjob_controller.util.timestamps import parse_time_or_none

# Does a gang that waits fit now? Held: it would, but the room is for another that comes first. Unknown: no pass of the
# admission loop has looked at it.
FITS = YES, HELD, NO, UNKNOWN = "yes", "held", "no", "unknown"


def waiting_gangs(gangs: Iterable[Gang], verdicts: Iterable[Decision], now: datetime) -> Iterator[tuple[str, float]]:
    """Of each gang that waits: one of `FITS`, and for how many seconds it has waited."""
    known = {each.gang_key: _fits(each) for each in verdicts}
    waiting = (each for each in gangs if each.status.phase in ("", WAITING) and not each.metadata.deletion_timestamp)
    for queued in queue_order(waiting):
        yield known.get(queued.key, UNKNOWN), queued.waiting_seconds(now)


def partly_bound_seconds(
    gangs: Iterable[Gang], pods_of: Callable[[Gang], Iterable[ScheduledPod]], now: datetime
) -> Iterator[float]:
    """Of each gang of which some members are bound and others are not yet: seconds since it was admitted."""
    for gang in gangs:
        since = parse_time_or_none(gang.status.admitted_time)
        if gang.status.phase == ADMITTED and since is not None and _is_partly_bound(gang, pods_of(gang)):
            yield max((now - since).total_seconds(), 0.0)


def _fits(verdict: Decision) -> str:
    if isinstance(verdict, Admit):
        return YES
    if isinstance(verdict, Unschedulable) or not verdict.may_fit:
        return NO
    return HELD if verdict.message == HELD_BACK else YES


def _is_partly_bound(gang: Gang, pods: Iterable[ScheduledPod]) -> bool:
    members = pods_by_member(gang, pods)
    return len({is_bound_member(members, member) for member in placed_nodes(gang.status)}) > 1
