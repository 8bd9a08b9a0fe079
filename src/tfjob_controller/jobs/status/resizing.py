"""Reports changes of the number of a job's workers, and decides whether the controller changes it.

The nodes of an elastic TrainJob are resized by the same rules; its field is `spec.numNodes`.

Theory of operation. `spec.workerReplicas` has three writers: people (`kubectl scale`), a HorizontalPodAutoscaler, and
this controller, if it runs with --autoscaling=on and the gang scheduler requests another number in the status of the
job's Gang. The last writer wins. The controller records its request (`status.scaling.target`) before it writes the
spec: if the number in the spec is the recorded one, the change is its own, otherwise that of another writer. The write
is repeated until the spec has the number, another writer has changed the spec, or the request is withdrawn.

The condition Resizing is True from a change until the children match it: those that must leave are deleted with their
pods, and those that are added have their Job (with resize Restart: all are of the current restart attempt).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.api.gang import BOUND, Gang
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import NORMAL, WARNING, Conditions, StatusEvent
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.plan.gangterms import OFF, ON
from tfjob_controller.jobs.plan.model import Role
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import next_attempt
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.trainingjob import Scaling

_NO_REASON = "the gang scheduler requests it"


@dataclass(frozen=True, slots=True)
class RequestedWorkers:
    """The number of workers that the gang scheduler requests."""

    workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The next `status.scaling`, events, and the number of workers to be written to the spec, if any."""

    scaling: Scaling | None
    events: tuple[StatusEvent, ...] = ()
    scale_to: int | None = None


def decide_scaling(job_state: JobState, next_conditions: Conditions) -> ScalingDecision:
    """Returns the decision for a job that has not ended, and sets the condition Resizing."""
    role = job_state.plan.scaled_role
    if role is None:
        return ScalingDecision(None)
    wanted = role.replicas
    old = job_state.status.scaling
    changed = old is not None and old.replicas != wanted
    events = tuple(_events(job_state, old, wanted)) if old is not None and changed else ()
    scaling = _followed(job_state, old or Scaling(replicas=wanted), wanted)
    request = None if changed else _request(job_state, wanted)
    _set_resizing(job_state, scaling, next_conditions, changed=changed)
    if (
        request is None
        or job_state.plan.scaling.autoscaling != ON
        or job_state.plan.policy.suspend
        or _is_resizing(job_state)
    ):
        recommendations = tuple(_recommendations(job_state, wanted, request, next_conditions))
        return ScalingDecision(replace(scaling, target=0, target_reason=""), (*events, *recommendations))
    return ScalingDecision(
        replace(scaling, target=request.workers, target_reason=request.reason), events, request.workers
    )


def resize_message(before: int, after: int, reason: str, by: str, role: str) -> str:
    """Returns a message for a resize. `reason` is the autoscaler's, or empty if another writer changed the number."""
    if not reason:
        return f"scaled {before} → {after} {role}s by {by}"
    return f"{'shrunk' if after < before else 'grown'} {before} → {after} {role}s: {reason}"


def _resize_message(job_state: JobState, before: int, after: int, reason: str) -> str:
    policy = job_state.plan.scaling
    return resize_message(before, after, reason, policy.workers_field, policy.role)


def _followed(job_state: JobState, old: Scaling, wanted: int) -> Scaling:
    """Returns the status for the present number of workers, which was the autoscaler's if it equals its target."""
    new = old
    if old.replicas != wanted:
        reason = old.target_reason if old.target == wanted else ""
        new = replace(old, replicas=wanted, before=old.replicas, reason=reason)
    if job_state.plan.scaling.resize != BY_RESTART:
        return new
    return new if job_state.attempt_members == new.members else next_attempt(new, job_state.attempt_members)


def _events(job_state: JobState, old: Scaling, wanted: int) -> Iterator[StatusEvent]:
    own, role = old.target == wanted, job_state.plan.scaling.role
    yield StatusEvent(
        NORMAL,
        reasons.RESIZED,
        _resize_message(job_state, old.replicas, wanted, old.target_reason if own else ""),
    )
    against = _overruled(old, wanted)
    if against and not own:
        note = (
            f"{role.capitalize()} count changed to {wanted}, overriding the autoscaler's target of {against}: "
            f"let only one writer set the {role}s of a job"
        )
        yield StatusEvent(WARNING, reasons.OVERRIDDEN, note)


def _overruled(old: Scaling, wanted: int) -> int:
    """Returns the autoscaler's number if `wanted` contradicts it; else 0."""
    if old.target:
        return old.target
    turns_back = (wanted - old.replicas) * (old.replicas - old.before) < 0
    return old.replicas if old.reason and turns_back else 0


def _request(job_state: JobState, wanted: int) -> RequestedWorkers | None:
    """Returns the gang scheduler's request for a running gang, within the job's own bounds; None if there is none.

    A request for an earlier generation of the Gang is ignored, since it would override a later change of the number of
    workers.
    """
    gang, bounds = job_state.observed.gang, job_state.plan.scaling.worker_bounds
    if (
        job_state.plan.scaling.autoscaling == OFF
        or bounds is None
        or gang is None
        or job_state.admission is None
        or not job_state.admission.is_admitted
    ):
        return None
    role = job_state.plan.scaling.role
    target = gang.status.target_members.get(role)
    count = _count_of(gang, role)
    is_old = gang.status.observed_generation < gang.metadata.generation
    if gang.status.phase != BOUND or target is None or target == count or is_old or _is_finishing(job_state):
        return None
    least, most = bounds
    workers = min(max(wanted + target - count, least), most)
    return RequestedWorkers(workers, gang.status.target_reason or _NO_REASON) if workers != wanted else None


def _count_of(gang: Gang, role: str) -> int:
    return next((member.count for member in gang.spec.members if member.name == role), 0)


def _is_finishing(job_state: JobState) -> bool:
    """Reports whether a worker has succeeded, so that the others will soon end as well."""
    return any(
        state.state == replica_state.SUCCEEDED
        for state in job_state.replica_states
        if state.replica.role.name == job_state.plan.scaling.role
    )


def _recommendations(
    job_state: JobState, wanted: int, request: RequestedWorkers | None, next_conditions: Conditions
) -> Iterator[StatusEvent]:
    """Yields an event for each new request. The condition is cleared when there is no request any more."""
    before = next_conditions.find(conditions.RESIZING)
    if request is None or job_state.plan.scaling.autoscaling == ON or next_conditions.is_true(conditions.RESIZING):
        if before is not None and before.reason == reasons.RESIZE_RECOMMENDED:
            message = f"No other number of {job_state.plan.scaling.role}s is recommended"
            next_conditions.set(conditions.RESIZING, False, reasons.NONE_RECOMMENDED, message)
        return
    message = f"recommends {wanted} → {request.workers} {job_state.plan.scaling.role}s: {request.reason}"
    if before is None or before.message != message:
        yield StatusEvent(NORMAL, reasons.RESIZE_RECOMMENDED, message)
    next_conditions.set(conditions.RESIZING, False, reasons.RESIZE_RECOMMENDED, message)


def _set_resizing(job_state: JobState, scaling: Scaling, next_conditions: Conditions, *, changed: bool) -> None:
    turns_over = job_state.status.scaling is not None and scaling.attempt != job_state.status.scaling.attempt
    before = next_conditions.find(conditions.RESIZING)
    if changed:
        message = _resize_message(job_state, scaling.before, scaling.replicas, scaling.reason)
        next_conditions.set(conditions.RESIZING, True, reasons.CHILDREN_FOLLOW, message)
    elif (
        before is not None and next_conditions.is_true(conditions.RESIZING) and not turns_over and not _lags(job_state)
    ):
        next_conditions.set(conditions.RESIZING, False, reasons.RESIZED, before.message)


def _lags(job_state: JobState) -> bool:
    """Reports whether the children do not match the number of workers yet."""
    if job_state.plan.policy.suspend:
        # Children change only once the job is resumed.
        return False
    if _is_resizing(job_state):
        return True
    jobs = job_state.observed.jobs
    for role in (role for role in job_state.plan.replicas.roles if role.is_elastic):
        job = jobs.get(f"{role.job_name}-0")
        if job is not None and job.spec.parallelism < role.replicas:
            return True
    names = {state.replica.name for state in job_state.replica_states if state.state != replica_state.SUCCEEDED}
    return not names <= jobs.keys()


def _is_resizing(job_state: JobState) -> bool:
    """Reports whether children that must leave still exist."""
    plan, jobs = job_state.plan, job_state.observed.jobs
    if any(name not in plan.replicas.by_name for name in jobs):
        return True
    if plan.replicas.is_elastic:
        return any(_has_leaving_indexes(job_state, role) for role in plan.replicas.roles if role.is_elastic)
    if plan.scaling.resize != BY_RESTART:
        return False
    return (job_state.admission is None or job_state.admission.is_admitted) and not job_state.stale.are_deleted


def _has_leaving_indexes(job_state: JobState, role: Role) -> bool:
    """Reports whether pods of indexes that the role does not have any more still run."""
    prefix, by_name = f"{role.job_name}-", job_state.plan.replicas.by_name
    return any(
        not is_finished(pod)
        for name, pods in job_state.observed.pods.items()
        if name.startswith(prefix) and name not in by_name
        for pod in pods
    )
