"""The statuses of a gang that another gang preempts. Pure.

    Bound ──request──▶ Bound, Requested ──all pods are gone──▶ Waiting, Preempted ──▶ Admitted
                           │
                           └──its pods could not be deleted in time──▶ Bound, NotFollowed

The owner deletes the pods. If it has not begun in time, the gang scheduler evicts them, and from then on pods without a
node are not waited for: they hold no capacity, are given none (extender/verbs.py), and their owner may create them
again and again. Pods that still run shortly before the time is over get a short grace period.

A request is not withdrawn, since the owner may have begun. It is made once in an attempt of the gang: if its pods do
not end, or a disruption budget protects them from eviction, the gang continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    is_bound,
    is_unfinished,
    unplaced_status,
)
from tfjob_controller.util.timestamps import format_micro_time, parse_time_or_none

# Since the request: until then the owner may begin to delete the pods of a preempted gang.
DELETION_SECONDS = 60.0
# After that: for how long the gang scheduler tries to evict pods that their owner has not begun to delete.
EVICTION_SECONDS = 15.0
# Since the request: pods that still run then get `SHORT_GRACE_SECONDS` as their grace period.
SHORTENING_SECONDS = 240.0
SHORT_GRACE_SECONDS = 30
# Since the request: all pods must have ended by then, or the gang continues.
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


def evicting_status(gang: Gang, now: datetime) -> GangStatus:
    """Returns the status which records that the gang scheduler deletes the pods itself."""
    by = gang.status.preemption.by if gang.status.preemption is not None else ""
    message = f"Preempted by {by}: its pods are evicted, because their owner did not delete them in time"
    return changed_status(gang, BOUND, "Bound", message, now)


def not_followed_status(gang: Gang, now: datetime) -> GangStatus:
    """Returns the status of a gang that continues because its pods could not be deleted in time."""
    preemption = gang.status.preemption or Preemption("", NOT_FOLLOWED, format_micro_time(now))
    message = f"Bound: {len(placed_nodes(gang.status))} pods. They were not deleted in time for {preemption.by}"
    return changed_status(gang, BOUND, "Bound", message, now, preemption=replace(preemption, state=NOT_FOLLOWED))


def leaving_status(gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> GangStatus | None:
    """Returns the next status of a gang that is being preempted, by its pods; None if nothing changes."""
    remaining, seconds = _remaining(gang, pods, now), _seconds(gang, now)
    if not remaining:
        return preempted_status(gang, now)
    has_undeleted = any(pod.metadata.deletion_timestamp is None for pod in remaining)
    if seconds >= LEAVING_SECONDS or (has_undeleted and seconds >= DELETION_SECONDS + EVICTION_SECONDS):
        return not_followed_status(gang, now)
    if has_undeleted and seconds >= DELETION_SECONDS:
        status = evicting_status(gang, now)
        return status if status.message != gang.status.message else None
    return None


def evictions(
    gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime
) -> Sequence[tuple[ScheduledPod, int | None, float]]:
    """Returns the pods of a gang that is being preempted which the gang scheduler evicts now.

    With each, the grace period in seconds, None for its own one, and for how many seconds the eviction is tried.
    """
    seconds = _seconds(gang, now)
    if not DELETION_SECONDS <= seconds < LEAVING_SECONDS:
        return ()
    remaining = _remaining(gang, pods, now)
    if seconds >= SHORTENING_SECONDS:
        return [(pod, SHORT_GRACE_SECONDS, LEAVING_SECONDS - seconds) for pod in remaining]
    left = DELETION_SECONDS + EVICTION_SECONDS - seconds
    return [(pod, None, left) for pod in remaining if pod.metadata.deletion_timestamp is None]


def leaving_timeouts(gang: Gang, now: datetime) -> tuple[float, ...]:
    """Returns in how many seconds something of a gang that is being preempted may change by itself."""
    if not must_leave(gang):
        return ()
    passed = _seconds(gang, now)
    ends = DELETION_SECONDS, DELETION_SECONDS + EVICTION_SECONDS, SHORTENING_SECONDS, LEAVING_SECONDS
    return tuple(end - passed for end in ends if end > passed)


def _remaining(gang: Gang, pods: Mapping[str, ScheduledPod], now: datetime) -> Sequence[ScheduledPod]:
    """Returns the pods that are waited for: the unfinished ones, and once pods are evicted only those with a node."""
    are_evicted = _seconds(gang, now) >= DELETION_SECONDS
    return [pod for pod in pods.values() if is_unfinished(pod) and (is_bound(pod) or not are_evicted)]


def _seconds(gang: Gang, now: datetime) -> float:
    """Returns the seconds since the request; `LEAVING_SECONDS` if its time is absent, invalid or far ahead."""
    preemption = gang.status.preemption
    since = parse_time_or_none(preemption.time) if preemption is not None else None
    seconds = (now - since).total_seconds() if since is not None else LEAVING_SECONDS
    return seconds if seconds > -DELETION_SECONDS else LEAVING_SECONDS
