"""The status of a job: what the controller reports of it, and what it must remember between syncs.

A TFJob has this status on the wire. A TrainJob's status is computed as this one, too, and then converted to its own.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.common.schema import describe


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class JobCondition(_Value, frozen=True, omit_defaults=False):
    """A standard condition (metav1.Condition)."""

    type: Annotated[str, describe("The type of the condition, such as Running.")]
    status: Annotated[str, describe("True, False or Unknown.")]
    reason: Annotated[str, describe("The reason of the last transition, as one CamelCase word.")]
    message: Annotated[str, describe("The details of the last transition.")]
    last_transition_time: Annotated[str, describe("When the status last changed.", format="date-time")]
    observed_generation: Annotated[
        int, describe("The metadata.generation that the condition was computed from.", format="int64", minimum=0)
    ] = 0


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


class Progress(_Value, frozen=True):
    """The steps of the job."""

    done: Annotated[int, describe("The steps done by all workers, including deleted ones.", format="int64")] = 0
    total: Annotated[int, describe("The steps to do: autoscaling.totalSteps.", format="int64")] = 0
    counts: Annotated[
        dict[str, int],
        describe("The steps done by each worker's pod, by UID. Deleted pods stay listed, so that the sum is correct."),
    ] = {}
    ignored: Annotated[str, describe("The first invalid report, and the reason.")] = ""


# Fields of both job kinds.
Disruptions: TypeAlias = Annotated[
    int,
    describe(
        "The restarts that the program did not cause: evictions, drains, preemptions, lost nodes, deleted pods. "
        "backoffLimit and maxRestarts do not limit them.",
        format="int32",
    ),
]
RestartCounts: TypeAlias = Annotated[
    dict[str, int],
    describe("The restarts of each replica, such as worker-3; of an elastic node also by pod, until another one runs."),
]
LastCheckpoint: TypeAlias = Annotated[
    CheckpointStatus | None,
    describe("The last saved checkpoint of a job with spec.checkpoint, and the restored one."),
]
Summary: TypeAlias = Annotated[
    str,
    describe(
        "Pending, Running, Suspended, Succeeded or Failed: the state of the whole job for `kubectl get`. Programs "
        "should read phase and conditions."
    ),
]


class TrainingStatus(_Value, frozen=True):
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

    def ready_count(self, role: str) -> int:
        """Returns the number of ready replicas of a role, by which it is listed in `ready`."""
        return int(self.ready.get(role, "0/0").partition("/")[0])
