"""Converts between `TrainingStatus`, on which decisions are made, and the status of a TrainJob."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.trainjob import types as wire
from tfjob_controller.api.trainjob.types import NODE, JobsStatus, NodeScaling, TrainJob, TrainJobStatus
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.state.replica_state import FAILED, RUNNING, SUCCEEDED, UNKNOWN
from tfjob_controller.jobs.trainingjob import PHASE_CREATING, RoleStatus, Scaling, TrainingJob, TrainingStatus
from tfjob_controller.kinds.reasons import ALL_JOBS_COMPLETED, JOBS_BUILD_FAILED, JOBS_CREATION_SUCCEEDED
from tfjob_controller.kinds.wirestatus import shared_fields, shared_scaling

COMPLETE = "Complete"
# The names that differ in this API. Each has one counterpart, so that they can be converted back.
TYPES = {conditions.SUCCEEDED: COMPLETE}
REASONS = {
    reasons.JOB_CREATED: JOBS_CREATION_SUCCEEDED,
    reasons.INVALID_SPEC: JOBS_BUILD_FAILED,
    reasons.CHIEF_SUCCEEDED: ALL_JOBS_COMPLETED,
}
_STATES = {SUCCEEDED: wire.SUCCESS, FAILED: wire.FAILED, RUNNING: wire.RUNNING, UNKNOWN: ""}
_OWN_TYPES = {theirs: ours for ours, theirs in TYPES.items()}
_OWN_REASONS = {theirs: ours for ours, theirs in REASONS.items()}
_OWN_STATES = {theirs: ours for ours, theirs in _STATES.items()}


def to_wire(status: TrainingStatus, before: TrainJobStatus) -> TrainJobStatus:
    """Returns the status of the TrainJob. `before` supplies the fields that TrainingStatus lacks (metrics, runtime)."""
    jobs = tuple(_jobs_status(role, status) for role in status.roles)
    return replace(
        before,
        **shared_fields(status),
        state=_STATES.get(status.state, ""),
        conditions=_renamed(status.conditions, TYPES, REASONS),
        jobs_status=jobs,
        scaling=_node_scaling(status.scaling) if status.scaling is not None else None,
        current_nodes=status.scaled_replicas,
        selector=status.scaled_selector,
        checkpoint=status.checkpoint,
        nodes=next((f"{job.ready + job.succeeded}/{job.replicas}" for job in jobs if job.name == NODE), ""),
    )


def from_wire(status: TrainJobStatus) -> TrainingStatus:
    """Returns the status from which `to_wire` made this one."""
    return TrainingStatus(
        **shared_fields(status),
        state=_OWN_STATES.get(status.state, "") if status.phase else "",
        conditions=_renamed(status.conditions, _OWN_TYPES, _OWN_REASONS),
        roles=tuple(map(_role_status, status.jobs_status)),
        scaling=_scaling(status.scaling) if status.scaling is not None else None,
        scaled_replicas=status.current_nodes,
        scaled_selector=status.selector,
        checkpoint=status.checkpoint,
    )


def trainjob_work(job: TrainJob) -> TrainingJob:
    return TrainingJob(job.metadata, from_wire(job.status), job.spec.ttl_seconds_after_finished)


def _node_scaling(scaling: Scaling) -> NodeScaling:
    return NodeScaling(nodes=scaling.replicas, attempt=scaling.attempt, **shared_scaling(scaling))


def _scaling(scaling: NodeScaling) -> Scaling:
    return Scaling(replicas=scaling.nodes, attempt=scaling.attempt, **shared_scaling(scaling))


def _renamed(
    before: tuple[JobCondition, ...], types: Mapping[str, str], new_reasons: Mapping[str, str]
) -> tuple[JobCondition, ...]:
    return tuple(
        replace(
            condition,
            type=types.get(condition.type, condition.type),
            reason=new_reasons.get(condition.reason, condition.reason),
        )
        for condition in before
    )


def _jobs_status(role: RoleStatus, status: TrainingStatus) -> JobsStatus:
    states = role.states
    is_suspended = conditions.has_true(status.conditions, conditions.SUSPENDED)
    succeeded = states.get(SUCCEEDED, 0)
    return JobsStatus(
        name=role.role,
        replicas=role.replicas,
        ready=role.ready - succeeded,
        active=states.get(RUNNING, 0),
        succeeded=succeeded,
        failed=states.get(FAILED, 0),
        suspended=states.get(UNKNOWN, 0) if is_suspended and status.phase == PHASE_CREATING else 0,
    )


def _role_status(jobs: JobsStatus) -> RoleStatus:
    """Counts replicas that are in none of the other states as Unknown."""
    counts = {SUCCEEDED: jobs.succeeded, RUNNING: jobs.active, FAILED: jobs.failed}
    counts[UNKNOWN] = jobs.replicas - sum(counts.values())
    states = {state: count for state, count in counts.items() if count}
    return RoleStatus(jobs.name, states, jobs.ready + jobs.succeeded)
