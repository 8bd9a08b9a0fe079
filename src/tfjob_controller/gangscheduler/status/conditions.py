"""The conditions of a Gang: Scheduled, and Preempted once another gang has asked for its capacity. Pure."""

from __future__ import annotations

from datetime import datetime

from tfjob_controller.api.gang import NOT_FOLLOWED, REQUESTED, Gang, GangCondition, Preemption
from tfjob_controller.api.gang import PREEMPTED as PODS_GONE
from tfjob_controller.util.timestamps import format_time

SCHEDULED, PREEMPTED = "Scheduled", "Preempted"


def condition(gang: Gang, type_: str, is_true: bool, reason: str, message: str, now: datetime) -> GangCondition:
    """Returns a condition. Its time is that of the last change of its status."""
    status = "True" if is_true else "False"
    old = next((present for present in gang.status.conditions if present.type == type_), None)
    since = old.last_transition_time if old is not None and old.status == status else format_time(now)
    return GangCondition(type_, status, reason, message, since, gang.metadata.generation)


def preempted_condition(gang: Gang, preemption: Preemption | None, now: datetime) -> tuple[GangCondition, ...]:
    """Returns the condition Preempted; none for a gang that never was preempted."""
    if preemption is None:
        has_one = any(present.type == PREEMPTED for present in gang.status.conditions)
        message = "The gang is not preempted any more"
        return (condition(gang, PREEMPTED, False, "NotPreempted", message, now),) if has_one else ()
    messages = {
        REQUESTED: f"{preemption.by} gets the capacity: the owner is to delete all pods",
        PODS_GONE: f"{preemption.by} got the capacity",
        NOT_FOLLOWED: f"Not all pods could be deleted in time for {preemption.by}, and the gang continues",
    }
    is_true = preemption.state != NOT_FOLLOWED
    message = messages.get(preemption.state, "")
    return (condition(gang, PREEMPTED, is_true, preemption.state, message, now),)
