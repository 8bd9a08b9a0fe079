"""The effective values of a TFJob's fields, defaults included. All functions are pure; the spec stays as it is."""

from __future__ import annotations

from tfjob_controller.api.common.policies import CLEAN_RUNNING, IN_PLACE
from tfjob_controller.api.tfjob.types import DEFAULT_PORT, FAIL_ON_CHIEF, MASTER, WORKER, Chief, ReplicaSpec, TFJobSpec


def replica_spec(spec: TFJobSpec, replica_type: str) -> ReplicaSpec | None:
    """The entry of a replica type; None if the job has none."""
    return next((entry for entry in spec.replica_specs if entry.tf_replica_type == replica_type), None)


def replicas_of(spec: TFJobSpec, replica_type: str) -> int:
    """The desired number of replicas of a type; 0 if the type is not listed.

    `spec.workerReplicas`, which the scale subresource writes, overrides the number in the WORKER entry.
    """
    entry = replica_spec(spec, replica_type)
    if entry is None:
        return 0
    if replica_type == WORKER and spec.worker_replicas is not None:
        return spec.worker_replicas
    return own_replicas_of(entry)


def own_replicas_of(entry: ReplicaSpec) -> int:
    """The number in the entry itself; `replicas_of` has the effective one."""
    return 1 if entry.replicas is None else entry.replicas


def port_of(entry: ReplicaSpec) -> int:
    return DEFAULT_PORT if entry.tf_port is None else entry.tf_port


def chief_of(spec: TFJobSpec) -> Chief:
    """The replica whose completion completes the job: as specified, else MASTER 0, or WORKER 0 without a master.

    A spec that lists neither type has the chief MASTER, so that validation names the missing type.
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
    """Whether the job requests gang scheduling; None leaves it to the controller."""
    return spec.gang.enabled if spec.gang is not None else None


def min_workers_of(spec: TFJobSpec) -> int | None:
    """The minimum number of workers; None if the job gives none."""
    of_gang = spec.gang.min_workers if spec.gang is not None else None
    if spec.autoscaling is None:
        return of_gang
    return next((least for least in (spec.autoscaling.min_workers, of_gang) if least is not None), 1)


def bounds_of(spec: TFJobSpec) -> tuple[int, int] | None:
    """The minimum and the maximum number of workers; None for a job without autoscaling."""
    return (min_workers_of(spec) or 1, spec.autoscaling.max_workers) if spec.autoscaling is not None else None


def resize_of(spec: TFJobSpec) -> str:
    """How the job is resized; empty for a job without autoscaling, whose TF_CONFIG lists the existing replicas."""
    return (spec.autoscaling.resize or IN_PLACE) if spec.autoscaling is not None else ""


def total_steps_of(spec: TFJobSpec) -> int | None:
    return spec.autoscaling.total_steps if spec.autoscaling is not None else None
