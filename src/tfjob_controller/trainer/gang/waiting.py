"""The condition Scheduled of a job that runs as a gang, and what happens when it has waited for too long.

The waiting time starts when the condition Scheduled became False or the job was resumed. So a gang that returns to the
queue has its full time again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.gang import ON_TIMEOUT_FAIL, ON_TIMEOUT_SUSPEND, RELEASED, UNSCHEDULABLE, Gang, placed_nodes
from tfjob_controller.trainer import conditions, reasons
from tfjob_controller.trainer.gang.admission import GangAdmission
from tfjob_controller.trainer.gang.terms import GangTerms
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.completion import Completion
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.util.timestamps import format_time, parse_time

_NOT_SEEN = "The gang scheduler has not looked at the job yet: does it run?"
_OFF = "The job asks for gang scheduling, which is turned off: its replicas are scheduled one by one"
_STOPPING = "waits until the pods of the last attempt are gone"
_WHAT_FOLLOWS = {ON_TIMEOUT_FAIL: "the job fails", ON_TIMEOUT_SUSPEND: "the job is suspended"}


@dataclass(frozen=True, slots=True)
class GangWait:
    """The desired condition Scheduled, and `words` for the job's own reason.

    `seconds_left` is the time until the wait times out; None if it never does, or if the job does not wait.
    """

    scheduled: bool
    reason: str
    message: str
    words: str = ""
    seconds_left: float | None = None
    verdict: Completion | None = None
    suspends: bool = False


def gang_wait(
    plan: Plan, admission: GangAdmission | None, observed: ObservedState, status: TrainingStatus, now: datetime
) -> GangWait | None:
    """None for a job that neither is a gang nor requests to be one. `status` is the current one."""
    if plan.scheduling.is_gang_refused:
        return GangWait(False, reasons.GANG_SCHEDULING_OFF, _OFF)
    if plan.scheduling.gang is None or admission is None:
        return None
    if admission.is_admitted and observed.gang is not None:
        return _admitted(admission, observed.gang)
    return wait_with_timeout(plan.scheduling.gang, *_why(observed.gang), status, now)


def _admitted(admission: GangAdmission, gang: Gang) -> GangWait:
    message = f"There is room for {len(placed_nodes(gang.status))} of {sum(admission.member_counts.values())} replicas"
    return GangWait(True, reasons.GANG_ADMITTED, message, "" if admission.stale.are_deleted else _STOPPING)


def wait_with_timeout(terms: GangTerms, reason: str, message: str, status: TrainingStatus, now: datetime) -> GangWait:
    """The wait of a job for this reason, which may time out."""
    if terms.timeout_seconds is None:
        return GangWait(False, reason, message, _in_words(message))
    end = _since(status, now) + timedelta(seconds=terms.timeout_seconds)
    seconds_left = (end - now).total_seconds()
    if seconds_left > 0:
        follows = _WHAT_FOLLOWS.get(terms.on_timeout, "that is told")
        message = f"{message}; {follows} at {format_time(end)}"
        return GangWait(False, reason, message, _in_words(message), seconds_left)
    return _timed_out(terms, message)


def _timed_out(terms: GangTerms, why: str) -> GangWait:
    message = f"No room within {terms.timeout_seconds} s: {why}"
    fails = terms.on_timeout == ON_TIMEOUT_FAIL
    return GangWait(
        False,
        reasons.TIMED_OUT,
        message,
        _in_words(message),
        verdict=Completion(False, reasons.TIMED_OUT, f"{reasons.TIMED_OUT}: {message}") if fails else None,
        suspends=terms.on_timeout == ON_TIMEOUT_SUSPEND,
    )


def _why(gang: Gang | None) -> tuple[str, str]:
    if gang is None or gang.spec.suspend or gang.status.phase in ("", RELEASED):
        return reasons.WAITING_FOR_SCHEDULER, _NOT_SEEN
    status = gang.status
    message = status.message or "There is no room yet"
    if status.phase == UNSCHEDULABLE:
        return reasons.EXCEEDS_CLUSTER_CAPACITY, message
    place = f" (position {status.position} in the queue)" if status.position else ""
    return reasons.WAITING_FOR_CAPACITY, message + place


def _in_words(message: str) -> str:
    return f"waits for room: {message}"


def _since(status: TrainingStatus, now: datetime) -> datetime:
    """When the wait started, in whole seconds as conditions have them."""
    scheduled = conditions.find(status.conditions, conditions.SCHEDULED)
    suspended = conditions.find(status.conditions, conditions.SUSPENDED)
    if scheduled is None or scheduled.status != conditions.FALSE:
        return now
    if suspended is None:
        return parse_time(scheduled.last_transition_time)
    if suspended.status != conditions.FALSE:
        return now
    return parse_time(max(scheduled.last_transition_time, suspended.last_transition_time))
