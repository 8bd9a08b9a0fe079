"""The counts in a status: replicas by role and state, restarts, and the replicas that have succeeded."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tfjob_controller.api.common.core import POD_RUNNING
from tfjob_controller.api.gang import index_of, kind_of
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.naming import replica_type_labels, selector_string
from tfjob_controller.jobs.plan.model import Plan, Role
from tfjob_controller.jobs.scaling.progress import next_progress
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.replica_state import ReplicaState, has_run_and_succeeded
from tfjob_controller.jobs.state.restarts import is_end_counted
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingStatus
from tfjob_controller.util.timestamps import format_time

_ENDS = (replica_state.SUCCEEDED, replica_state.FAILED)


def with_counts(job_state: JobState) -> TrainingStatus:
    """Returns the old status with all counts updated."""
    old, plan, states = job_state.status, job_state.plan, job_state.replica_states
    return replace(
        old,
        observed_generation=job_state.job.metadata.generation,
        start_time=(old.start_time or format_time(job_state.now))
        if job_state.has_started and not plan.policy.suspend
        else None,
        roles=_roles(plan, states),
        progress=next_progress(plan, job_state.observed, old.progress) if plan.progress.is_enabled else old.progress,
        succeeded_indexes=_succeeded(plan, old.succeeded_indexes, states),
        restart_counts=job_state.restart_counts,
        restarts=job_state.restarts,
        disruptions=job_state.disruptions,
        scaled_replicas=_existing(plan, states),
        scaled_selector=_selector(plan),
    )


def with_restart(job_state: JobState, status: TrainingStatus) -> TrainingStatus:
    """Returns the status with one more restart if all replicas are restarted, also those that have succeeded."""
    if not job_state.must_restart_all:
        return status
    states = job_state.replica_states
    together = {state.replica.id for state in states if state.replica.role.restarts_together}
    kept = tuple(id_ for id_ in status.succeeded_indexes if id_ not in together)
    restarted = [
        ReplicaState(state.replica, replica_state.RUNNING) if state.replica.id in together else state
        for state in states
    ]
    causes, scaling = job_state.restart_causes, status.scaling
    # The end of a lost or drained pod of an elastic role may be counted already.
    is_counted = all(is_end_counted(cause, status.restart_counts) for cause in causes)
    if job_state.plan.replicas.is_elastic and scaling is not None:
        scaling = replace(scaling, attempt=scaling.attempt + 1)
    return replace(
        status,
        restarts=status.restarts + (not is_counted),
        disruptions=status.disruptions + (not is_counted and all(cause.is_disrupted for cause in causes)),
        scaling=scaling,
        succeeded_indexes=kept,
        roles=_roles(job_state.plan, restarted),
    )


def _roles(plan: Plan, states: Sequence[ReplicaState]) -> tuple[RoleStatus, ...]:
    return tuple(_role_status(plan, role, states) for role in plan.replicas.roles)


def _role_status(plan: Plan, role: Role, states: Sequence[ReplicaState]) -> RoleStatus:
    counts: dict[str, int] = {}
    ready = active = ended = 0
    for state in states:
        if state.replica.role is role:
            reported = _reported_state(plan, state)
            counts[reported] = counts.get(reported, 0) + 1
            ready += state.is_ready or state.state == replica_state.SUCCEEDED
            if plan.carrier is not None and state.pod is not None and reported not in _ENDS:
                is_stopped = state.job is not None and state.job.spec.suspend
                is_over = state.is_replaced and not is_stopped
                ended += is_over
                # The pods of a suspended job count until they have ended.
                is_active = not is_over and (plan.policy.suspend or not is_stopped)
                active += is_active and state.pod.status.phase == POD_RUNNING
    return RoleStatus(role.name, counts, ready, active, ended)


def _reported_state(plan: Plan, state: ReplicaState) -> str:
    """Returns the state to count.

    Unless the chief alone decides, a replica without a Job counts as Unknown, and so does one whose suspended Job is
    replaced.
    """
    has_job = state.job is not None and (plan.policy.suspend or not state.job.spec.suspend)
    is_known = has_job or not plan.replicas.needed or state.state != replica_state.RUNNING
    return state.state if is_known else replica_state.UNKNOWN


def _existing(plan: Plan, states: Sequence[ReplicaState]) -> int:
    """Returns how many replicas of the scaled role have a Job; for an elastic role how many indexes its Job has."""
    jobs = [state.job for state in states if state.job is not None and state.replica.role.name == plan.scaling.role]
    return jobs[0].spec.parallelism if plan.replicas.is_elastic and jobs else len(jobs)


def _succeeded(plan: Plan, old: tuple[str, ...], states: Sequence[ReplicaState]) -> tuple[str, ...]:
    """Returns the ids of all replicas that ever succeeded, including those that a resize has removed since.

    With strict rules only those whose pods exist count. Removed replicas of an elastic role are left out, since an
    Indexed Job runs an index that is added again. So are those of a set whose suspended Jobs are replaced, which all
    run again.
    """
    if plan.policy.is_strict:
        old = ()
    if plan.replicas.is_elastic:
        present = {state.replica.id for state in states}
        old = tuple(id_ for id_ in old if id_ in present)
    again = {state.replica.id for state in states if not plan.policy.suspend and _runs_again(state, states)}
    if again:
        old = tuple(id_ for id_ in old if id_ not in again)
    new = {state.replica.id for state in states if has_run_and_succeeded(state)}.difference(old, again)
    return tuple(sorted(new.union(old), key=_natural)) if new else old


def _runs_again(state: ReplicaState, states: Sequence[ReplicaState]) -> bool:
    role = state.replica.role
    if not role.restarts_together or state.job is None or not state.job.spec.suspend:
        return False
    return any(state.replica.role is role and state.state != replica_state.SUCCEEDED for state in states)


def _natural(replica_id: str) -> tuple[str, int, str]:
    return kind_of(replica_id), index_of(replica_id) or 0, replica_id


def _selector(plan: Plan) -> str:
    role = plan.scaled_role
    return selector_string(replica_type_labels(plan.identity.labels, role.replica_type)) if role is not None else ""
