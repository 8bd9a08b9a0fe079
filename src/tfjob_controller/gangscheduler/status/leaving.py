"""The statuses of a gang that another gang preempts. Pure.

    Bound ──request──▶ Bound, Requested ──all pods are gone──▶ Waiting, Preempted ──▶ Admitted
                           │
                           └──owner did not delete them in time──▶ Bound, NotFollowed

The owner deletes the pods, the gang scheduler none. A request is not withdrawn: the owner may have begun. A gang whose
owner did not follow is not asked again in this attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import (
    BOUND,
    NOT_FOLLOWED,
    PREEMPTED,
    REQUESTED,
    WAITING,
    Gang,
    GangStatus,
    Preemption,
    must_leave,
    placed_nodes,
)
from tfjob_controller.gangscheduler.status.lifecycle import (
    NO_RESIZE_REQUEST,
    changed_status,
    is_unfinished,
    unplaced_status,
)
from tfjob_controller.util.timestamps import format_micro_time, parse_time_or_none

# How long an owner may take to begin to delete the pods of a preempted gang, and how long they may take to end.
DELETION_SECONDS = 60.0
LEAVING_SECONDS = 300.0


def preemption_requested_status(gang: Gang, preemptor: str, now: datetime) -> GangStatus:
    """Returns the status that asks the owner of a bound gang to delete all of its pods."""
    return changed_status(
        gang,
        BOUND,
        "Bound",
        f"Preempted by {preemptor}: waits until all of its pods are deleted",
        now,
        preemption=Preemption(preemptor, REQUESTED, format_micro_time(now)),
        **NO_RESIZE_REQUEST,
    )


def preempted_status(gang: Gang, now: datetime) -> GangStatus:
    """Returns the status of a preempted gang whose pods are gone: it queues again, with its age."""
    preemption = gang.status.preemption or Preemption("", PREEMPTED, format_micro_time(now))
    message = f"Preempted by {preemption.by}, and waits for capacity"
    changes = {"preemption": replace(preemption, state=PREEMPTED), "bound_time": None, **NO_RESIZE_REQUEST}
    return unplaced_status(gang, WAITING, "Preempted", message, now, **changes)


def not_followed_status(gang: Gang, now: datetime) -> GangStatus:
    """Returns the status of a gang that goes on, since its owner did not delete its pods in time."""
    preemption = gang.status.preemption or Preemption("", NOT_FOLLOWED, format_micro_time(now))
    message = f"Bound: {len(placed_nodes(gang.status))} pods. They were not deleted in time for {preemption.by}"
    return changed_status(gang, BOUND, "Bound", message, now, preemption=replace(preemption, state=NOT_FOLLOWED))


def leaving_status(gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> GangStatus | None:
    """Returns the next status of a gang that is being preempted; None as long as its pods are about to go in time."""
    unfinished = [pod for pod in pods.values() if is_unfinished(pod)]
    if not unfinished:
        return preempted_status(gang, now)
    seconds = _seconds(gang, now)
    is_late = any(pod.metadata.deletion_timestamp is None for pod in unfinished) and seconds >= DELETION_SECONDS
    return not_followed_status(gang, now) if is_late or seconds >= LEAVING_SECONDS else None


def leaving_timeouts(gang: Gang, now: datetime) -> tuple[float, ...]:
    """Returns in how many seconds the status of a gang that is being preempted may change by itself."""
    if not must_leave(gang):
        return ()
    passed = _seconds(gang, now)
    return tuple(end - passed for end in (DELETION_SECONDS, LEAVING_SECONDS) if end > passed)


def _seconds(gang: Gang, now: datetime) -> float:
    """Returns how long the gang has been preempted. A time that is invalid or lies ahead counts as long ago."""
    preemption = gang.status.preemption
    since = parse_time_or_none(preemption.time) if preemption is not None else None
    seconds = (now - since).total_seconds() if since is not None else LEAVING_SECONDS
    return seconds if seconds > -DELETION_SECONDS else LEAVING_SECONDS
