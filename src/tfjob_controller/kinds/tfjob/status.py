"""Converts between `TrainingStatus`, on which decisions are made, and the status of a TFJob."""

from __future__ import annotations

from collections.abc import Mapping

from tfjob_controller.api.tfjob.status import ReplicaStatus, ScalingStatus, TFJobStatus
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.jobs.trainingjob import (
    RoleStatus,
    Scaling,
    TrainingJob,
    TrainingStatus,
    ready_by_role,
)
from tfjob_controller.kinds.wirestatus import ready_count, role_state, shared_fields, shared_scaling


def to_wire(status: TrainingStatus, before: TFJobStatus) -> TFJobStatus:
    """Returns the status of the TFJob. `before` supplies the field that TrainingStatus lacks."""
    return TFJobStatus(
        **shared_fields(status),
        state=status.state,
        replica_statuses=tuple(
            ReplicaStatus(role.role.upper(), role_state(role.states), role.states) for role in status.roles
        ),
        control_paused=before.control_paused,
        conditions=status.conditions,
        scaling=_scaling_status(status.scaling) if status.scaling is not None else None,
        progress=status.progress,
        workers=status.scaled_replicas,
        worker_selector=status.scaled_selector,
        ready=ready_by_role(status),
        checkpoint=status.checkpoint,
    )


def from_wire(status: TFJobStatus) -> TrainingStatus:
    """Returns the status from which `to_wire` made this one."""
    return TrainingStatus(
        **shared_fields(status),
        state=status.state,
        roles=tuple(_role_status(replicas, status.ready) for replicas in status.replica_statuses),
        conditions=status.conditions,
        scaling=_scaling(status.scaling) if status.scaling is not None else None,
        progress=status.progress,
        scaled_replicas=status.workers,
        scaled_selector=status.worker_selector,
        checkpoint=status.checkpoint,
    )


def tfjob_work(job: TFJob) -> TrainingJob:
    return TrainingJob(job.metadata, from_wire(job.status), job.spec.ttl_seconds_after_finished)


def _role_status(replicas: ReplicaStatus, ready: Mapping[str, str]) -> RoleStatus:
    role = replicas.role.lower()
    return RoleStatus(role, replicas.states, ready_count(ready.get(role, "")))


def _scaling_status(scaling: Scaling) -> ScalingStatus:
    shared = shared_scaling(scaling)
    return ScalingStatus(workers=scaling.replicas, generation=scaling.attempt, members=scaling.members, **shared)


def _scaling(scaling: ScalingStatus) -> Scaling:
    shared = shared_scaling(scaling)
    return Scaling(replicas=scaling.workers, attempt=scaling.generation, members=scaling.members, **shared)
