"""The condition Scheduled of a job that runs as a gang, and what happens when it has waited for too long.

The waiting time starts when the condition Scheduled became False or the job was resumed. So a gang that returns to the
queue has its full time again.

A job that another scheduler runs is scheduled once the replicas that must run together have a node, and stays so until
none has one: a single replica that is restarted does not make the gang wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.gang import (
    ON_TIMEOUT_FAIL,
    ON_TIMEOUT_SUSPEND,
    PREEMPTED,
    RELEASED,
    REQUESTED,
    UNSCHEDULABLE,
    Gang,
    must_leave,
    placed_nodes,
)
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.gang.admission import GangAdmission
from tfjob_controller.jobs.gang.podgroup import min_counts
from tfjob_controller.jobs.plan.gangterms import GangTerms, PodGroupTerms
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.completion import Completion, Step
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.timestamps import format_time, parse_time

_NOT_SEEN = "The gang scheduler has not processed this job yet; check that it is running"
_OFF = "The job requests gang scheduling, which is turned off: its replicas are scheduled one by one"
_STOPPING = "waits until the pods of the last attempt are gone"
_WHAT_FOLLOWS = {ON_TIMEOUT_FAIL: "the job fails", ON_TIMEOUT_SUSPEND: "the job is suspended"}


@dataclass(frozen=True, slots=True)
class GangWait:
    """The desired condition Scheduled, and `job_reason` for the status of the job itself.

    `seconds_left` is the time until the wait times out; None if it never does, or if the job does not wait.
    """

    scheduled: bool
    reason: str
    message: str
    job_reason: str = ""
    seconds_left: float | None = None
    verdict: Completion | None = None
    suspends: bool = False


def gang_wait(
    plan: Plan, step: Step, admission: GangAdmission | None, status: TrainingStatus, now: datetime
) -> GangWait | None:
    """Returns the wait of a job that runs as a gang, or requests to; None in steps that are not part of the gang."""
    wait = _wait_of(plan, step, admission, status, now)
    group = plan.scheduling.pod_group
    terms = group.terms if group is not None else plan.scheduling.gang
    if wait is None or terms is None or not terms.warning:
        return wait
    return replace(wait, message=f"{wait.message}; {terms.warning}")


def _wait_of(
    plan: Plan, step: Step, admission: GangAdmission | None, status: TrainingStatus, now: datetime
) -> GangWait | None:
    terms, gang, group = step.plan.scheduling.gang, step.observed.gang, plan.scheduling.pod_group
    if step.plan.scheduling.is_gang_refused:
        return GangWait(False, reasons.GANG_SCHEDULING_OFF, _OFF)
    if terms is not None and admission is not None:
        if admission.is_admitted and gang is not None:
            return _admitted(admission, gang)
        return _wait_with_timeout(terms, *_why(gang), status, now)
    return _pod_group_wait(group, plan, step, status, now) if group is not None else None


def _admitted(admission: GangAdmission, gang: Gang) -> GangWait:
    message = (
        f"There is capacity for {len(placed_nodes(gang.status))} of {sum(admission.member_counts.values())} replicas"
    )
    return GangWait(True, reasons.GANG_ADMITTED, message, "" if admission.stale.are_deleted else _STOPPING)


def _wait_with_timeout(terms: GangTerms, reason: str, message: str, status: TrainingStatus, now: datetime) -> GangWait:
    """The wait of a job for this reason, which may time out."""
    if terms.timeout_seconds is None:
        return GangWait(False, reason, message, _job_reason(message))
    end = _since(status, now) + timedelta(seconds=terms.timeout_seconds)
    seconds_left = (end - now).total_seconds()
    if seconds_left > 0:
        follows = _WHAT_FOLLOWS.get(terms.on_timeout, "the wait times out")
        message = f"{message}; {follows} at {format_time(end)}"
        return GangWait(False, reason, message, _job_reason(message), seconds_left)
    return _timed_out(terms, message)


def _timed_out(terms: GangTerms, why: str) -> GangWait:
    message = f"No capacity within {terms.timeout_seconds} s: {why}"
    fails = terms.on_timeout == ON_TIMEOUT_FAIL
    return GangWait(
        False,
        reasons.TIMED_OUT,
        message,
        _job_reason(message),
        verdict=Completion(False, reasons.TIMED_OUT, f"{reasons.TIMED_OUT}: {message}") if fails else None,
        suspends=terms.on_timeout == ON_TIMEOUT_SUSPEND,
    )


def preemptor_of(gang: Gang | None) -> str:
    """Returns for which gang this one leaves its nodes, or has left them and waits; empty if it is not preempted."""
    preemption = gang.status.preemption if gang is not None else None
    return preemption.by if preemption is not None and preemption.state in (REQUESTED, PREEMPTED) else ""


def _why(gang: Gang | None) -> tuple[str, str]:
    if gang is None or gang.spec.suspend or gang.status.phase in ("", RELEASED):
        return reasons.WAITING_FOR_SCHEDULER, _NOT_SEEN
    status, preemptor = gang.status, preemptor_of(gang)
    if must_leave(gang):
        return reasons.PREEMPTED, f"preempted by {preemptor}: all pods are deleted"
    message = status.message or "There is no capacity yet"
    if status.phase == UNSCHEDULABLE:
        return reasons.EXCEEDS_CLUSTER_CAPACITY, message
    place = f" (position {status.position} in the queue)" if status.position else ""
    if preemptor:
        return reasons.PREEMPTED, f"preempted by {preemptor}. {message}{place}"
    is_preempting = any(condition.reason == reasons.PREEMPTING for condition in status.conditions)
    return reasons.PREEMPTING if is_preempting else reasons.WAITING_FOR_CAPACITY, message + place


def _job_reason(message: str) -> str:
    return f"waits for capacity: {message}"


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


_SCHEDULED = "All replicas that must run together have a node"


def _pod_group_wait(
    terms: PodGroupTerms, plan: Plan, step: Step, status: TrainingStatus, now: datetime
) -> GangWait | None:
    if step.plan.scheduling.pod_group is None and not plan.policy.is_held:
        return None
    placed = sum(_has_node(view) for view in step.replica_states)
    least = sum(min_counts(terms.terms, {}).values())
    before = conditions.find(status.conditions, conditions.SCHEDULED)
    was_scheduled = before is not None and before.reason == reasons.GANG_SCHEDULED
    if not plan.policy.is_held and placed >= (1 if was_scheduled else least):
        return GangWait(True, reasons.GANG_SCHEDULED, _SCHEDULED)
    message = _pending_message(terms, step) or _admitted_message(terms, step)
    if not message:
        name = f"{terms.backend.resource.kind} {terms.terms.name}"
        message = f"{name} has no status from its scheduler yet: check that it runs"
        return _wait_with_timeout(terms.terms, reasons.WAITING_FOR_SCHEDULER, message, status, now)
    return _wait_with_timeout(terms.terms, reasons.WAITING_FOR_CAPACITY, message, status, now)


def _pending_message(terms: PodGroupTerms, step: Step) -> str:
    """The scheduler's messages for the gang, and for its first pod with another message."""
    group = step.observed.pod_group
    of_group = terms.backend.pending_message(group) if group is not None else ""
    of_pods = (message for view in step.replica_states if (message := _unscheduled(view.pods)))
    # The group may repeat the message of one of its pods.
    of_pod = next((message for message in of_pods if message not in of_group), "")
    return "; ".join(message for message in (of_group, of_pod) if message)


def _admitted_message(terms: PodGroupTerms, step: Step) -> str:
    """What a gang waits for once its queue has admitted it: admission is a status, and the rest is kube-scheduler's."""
    admission, group = terms.backend.admission, step.observed.pod_group
    if admission is None or group is None or admission.holds(group):
        return ""
    return f"{terms.backend.resource.kind} {terms.terms.name} is admitted, and its pods wait for nodes"


def _has_node(view: ReplicaState) -> bool:
    return view.state == replica_state.SUCCEEDED or any(pod.spec.node_name for pod in view.pods)


def _unscheduled(pods: Sequence[Pod]) -> str:
    scheduled = (condition for pod in pods for condition in pod.status.conditions if condition.type == "PodScheduled")
    return next((condition.message for condition in scheduled if condition.status == "False"), "")
