"""The status of a TFJob on the wire. `kinds/tfjob/status.py` converts it for decisions, and back."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfjob_controller.api.common.schema import describe
from tfjob_controller.api.common.status import (
    Disruptions,
    JobCondition,
    LastCheckpoint,
    Progress,
    RestartCounts,
    Summary,
)


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ReplicaStatus(_Value, frozen=True):
    """The replicas of one role. The names on the wire are those of tf-operator's TFJob."""

    role: Annotated[str, describe("The replica type.")] = msgspec.field(name="tf_replica_type", default="")
    state: Annotated[
        str,
        describe(
            "Failed if any replica failed, else Running if any runs, else Succeeded if all succeeded, else Unknown.",
        ),
    ] = ""
    states: Annotated[
        dict[str, int], describe("The number of replicas by state: Running, Succeeded, Failed or Unknown.")
    ] = msgspec.field(name="ReplicasStates", default_factory=dict)


class ScalingStatus(_Value, frozen=True):
    """The number of workers that the job should have, and the last change of it."""

    workers: Annotated[int, describe("The number of workers that the job should have.", format="int32")] = 0
    before: Annotated[
        int, describe("The number before the last resize; 0 if the job was never resized.", format="int32")
    ] = 0
    target: Annotated[
        int, describe("The number of workers that the autoscaler requests now; 0 without a request.", format="int32")
    ] = 0
    target_reason: Annotated[str, describe("The reason of this request.")] = ""
    reason: Annotated[
        str, describe("The reason of the last resize by the autoscaler; empty if the last resize was not its own.")
    ] = ""
    generation: Annotated[
        int,
        describe("With resize Restart: the number of restarts of all replicas for a resize.", format="int32"),
    ] = 0
    members: Annotated[
        int, describe("With resize Restart: the number of workers in the TF_CONFIG of this generation.", format="int32")
    ] = 0


class TFJobStatus(_Value, frozen=True):
    """The observed state of a job."""

    phase: Annotated[str, describe("Creating, Running, CleanUp, Failed or Done; empty before the first sync.")] = ""
    state: Annotated[str, describe("Unknown, Running, Succeeded or Failed: the chief's state.")] = ""
    reason: Annotated[str, describe("The reason for the phase or for the wait of the job, with the remedy.")] = ""
    replica_statuses: Annotated[tuple[ReplicaStatus, ...], describe("The state of each replica type.")] = ()
    control_paused: Annotated[bool, describe("Always false; kept for clients of tf-operator.")] = False
    conditions: Annotated[
        tuple[JobCondition, ...],
        describe(
            "Created, Scheduled, Preempted, Running, Resizing, Restarting, Suspended, ChangesReverted, Succeeded, "
            "Failed: standard conditions."
        ),
    ] = ()
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, describe("When the job was started or last resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, describe("When the job finished.", format="date-time")] = None
    restarts: Annotated[int, describe("The restarts of all replicas.", format="int32")] = 0
    disruptions: Disruptions = 0
    restart_counts: RestartCounts = {}
    succeeded_indexes: Annotated[
        tuple[str, ...],
        describe("The replicas that succeeded, such as worker-3, sorted. They are not started again."),
    ] = ()
    scaling: Annotated[
        ScalingStatus | None, describe("The desired number of workers and its last change. Absent without workers.")
    ] = None
    progress: Annotated[
        Progress | None, describe("The steps of a job with autoscaling.totalSteps or autoscaling.progress.")
    ] = None
    workers: Annotated[int, describe("The number of existing workers, for the scale subresource.", format="int32")] = (
        msgspec.field(name="workerReplicas", default=0)
    )
    worker_selector: Annotated[str, describe("The label selector of the workers' pods, for the scale subresource.")] = (
        ""
    )
    ready: Annotated[
        dict[str, str],
        describe(
            "Ready and desired replicas, such as 1/1, by master, worker and ps, for `kubectl get`. A succeeded replica "
            "counts as ready."
        ),
    ] = {}
    checkpoint: LastCheckpoint = None
    summary: Summary = ""
