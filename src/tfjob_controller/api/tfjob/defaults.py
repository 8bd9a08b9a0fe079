"""What the fields that a job leaves out mean. Pure functions of the spec; nothing is written back into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfjob_controller.api.tfjob.types import (
    CLEAN_RUNNING,
    DEFAULT_PORT,
    FAIL_ON_CHIEF,
    IN_PLACE,
    MASTER,
    ON_FAILURE,
    WORKER,
    Chief,
    ReplicaSpec,
    TFJobSpec,
)


def replica_spec(spec: TFJobSpec, replica_type: str) -> ReplicaSpec | None:
    """The entry of a replica type, None where the job has none."""
    return next((entry for entry in spec.replica_specs if entry.tf_replica_type == replica_type), None)


def replicas_of(spec: TFJobSpec, replica_type: str) -> int:
    """How many replicas of a type the job wants now; 0 where the type is not listed.

    `spec.workerReplicas`, which the scale subresource writes, overrides the WORKER entry's own number.
    """
    entry = replica_spec(spec, replica_type)
    if entry is None:
        return 0
    if replica_type == WORKER and spec.worker_replicas is not None:
        return spec.worker_replicas
    return own_replicas_of(entry)


def own_replicas_of(entry: ReplicaSpec) -> int:
    """What the entry itself says; see `replicas_of` for what counts."""
    return 1 if entry.replicas is None else entry.replicas


def port_of(entry: ReplicaSpec) -> int:
    return DEFAULT_PORT if entry.tf_port is None else entry.tf_port


def chief_of(spec: TFJobSpec) -> Chief:
    """The replica whose end is the job's end: as the job says, else MASTER 0, else WORKER 0 where there is no master.

    The chief of a spec that lists neither is MASTER: that is the type which is missing.
    """
    if spec.termination_policy is not None and spec.termination_policy.chief is not None:
        return spec.termination_policy.chief
    listed = {entry.tf_replica_type for entry in spec.replica_specs}
    return Chief(replica_name=WORKER if WORKER in listed and MASTER not in listed else MASTER)


def clean_pod_policy_of(spec: TFJobSpec) -> str:
    return spec.clean_pod_policy or CLEAN_RUNNING


def failure_policy_of(spec: TFJobSpec) -> str:
    return spec.failure_policy or FAIL_ON_CHIEF


def gang_enabled(spec: TFJobSpec) -> bool | None:
    """What the job itself says of gang scheduling; None leaves it to the controller."""
    return spec.gang.enabled if spec.gang is not None else None


def min_workers_of(spec: TFJobSpec) -> int | None:
    """The least workers that the job may start and stay with; None where it does not say."""
    of_gang = spec.gang.min_workers if spec.gang is not None else None
    if spec.autoscaling is None:
        return of_gang
    return next((least for least in (spec.autoscaling.min_workers, of_gang) if least is not None), 1)


def bounds_of(spec: TFJobSpec) -> tuple[int, int] | None:
    """The least and the most workers; None for a job without autoscaling."""
    return (min_workers_of(spec) or 1, spec.autoscaling.max_workers) if spec.autoscaling is not None else None


def resize_of(spec: TFJobSpec) -> str:
    """How the number of workers changes; empty for a job without autoscaling, whose TF_CONFIG lists what there is."""
    return (spec.autoscaling.resize or IN_PLACE) if spec.autoscaling is not None else ""


def total_steps_of(spec: TFJobSpec) -> int | None:
    return spec.autoscaling.total_steps if spec.autoscaling is not None else None


def restart_policy_of(template: Mapping[str, Any] | None) -> str:
    """The restartPolicy of a pod template; a batch Job cannot have Kubernetes' own default, Always."""
    pod_spec = (template or {}).get("spec") or {}
    return str(pod_spec.get("restartPolicy") or ON_FAILURE)
