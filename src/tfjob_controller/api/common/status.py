"""What the controller says of a job, and what it must remember of it: on a TFJob's wire just as it stands here."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tfjob_controller.api.common.schema import describe


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class JobCondition(_Value, frozen=True, omit_defaults=False):
    """A standard condition (metav1.Condition)."""

    type: Annotated[str, describe("Created, Scheduled, Running, Resizing, Restarting, Suspended, Succeeded or Failed.")]
    status: Annotated[str, describe("True, False or Unknown.")]
    reason: Annotated[str, describe("Why, in one word for programs.")]
    message: Annotated[str, describe("Why, in words for people.")]
    last_transition_time: Annotated[str, describe("When the status last changed.", format="date-time")]
    observed_generation: Annotated[
        int, describe("The metadata.generation that the condition was computed from.", format="int64", minimum=0)
    ] = 0


class ReplicaStatus(_Value, frozen=True):
    """`ReplicasStates` counts the indexes of one replica type by their state, under upstream's capital R."""

    tf_replica_type: Annotated[str, describe("The replica type.")] = msgspec.field(name="tf_replica_type", default="")
    state: Annotated[
        str,
        describe(
            "Failed if any replica failed, else Running if any runs, else Succeeded if all did, else Unknown.",
        ),
    ] = ""
    replicas_states: Annotated[
        dict[str, int], describe("How many replicas are in which state (Running, Succeeded, Failed, Unknown).")
    ] = msgspec.field(name="ReplicasStates", default_factory=dict)


class ScalingStatus(_Value, frozen=True):
    """How many workers the children follow, and what was the last to change that."""

    workers: Annotated[int, describe("Workers that the job was asked for last.", format="int32")] = 0
    before: Annotated[int, describe("Workers before that; 0 if it was never resized.", format="int32")] = 0
    target: Annotated[
        int, describe("Workers that the autoscaler asks for just now; 0 while it asks for none.", format="int32")
    ] = 0
    target_reason: Annotated[str, describe("Why it asks for them.")] = ""
    reason: Annotated[
        str, describe("Why the autoscaler resized the job last; empty where the last one was somebody else.")
    ] = ""
    generation: Annotated[
        int,
        describe("With resize Restart: rises each time that all replicas are started anew for it.", format="int32"),
    ] = 0
    members: Annotated[
        int, describe("With resize Restart: the workers that TF_CONFIG lists in this generation.", format="int32")
    ] = 0


class Progress(_Value, frozen=True):
    """How far the job is, in steps."""

    done: Annotated[int, describe("Steps done by all workers that ever were.", format="int64")] = 0
    total: Annotated[int, describe("Steps to be done: autoscaling.totalSteps.", format="int64")] = 0
    counts: Annotated[
        dict[str, int],
        describe("Steps done by each worker's pod, by UID, so that the sum stays right after they are gone."),
    ] = {}
    ignored: Annotated[str, describe("The first report that could not be used, and why.")] = ""


# Of either kind.
Summary: TypeAlias = Annotated[
    str,
    describe(
        "Pending, Running, Suspended, Succeeded or Failed: what becomes of the job as a whole, in one word for "
        "`kubectl get`. Programs read phase and conditions."
    ),
]


class TrainingStatus(_Value, frozen=True):
    """What the controller says of a job."""

    phase: Annotated[
        str, describe("Creating, Running, CleanUp, Failed or Done; empty before the controller saw the job.")
    ] = ""
    state: Annotated[str, describe("Unknown, Running, Succeeded or Failed: the chief's state.")] = ""
    reason: Annotated[str, describe("Why, in words a user can act on; also while the job waits.")] = ""
    replica_statuses: Annotated[tuple[ReplicaStatus, ...], describe("The state of each replica type.")] = ()
    control_paused: Annotated[bool, describe("Always false; kept for upstream's readers.")] = False
    conditions: Annotated[
        tuple[JobCondition, ...],
        describe(
            "Created, Scheduled, Running, Resizing, Restarting, Suspended, Succeeded, Failed: standard conditions."
        ),
    ] = ()
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, describe("When the job was started, or resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, describe("When the job ended.", format="date-time")] = None
    restarts: Annotated[int, describe("Restarts of all replicas so far; backoffLimit limits it.", format="int32")] = 0
    restart_counts: Annotated[
        dict[str, int],
        describe("Restarts seen of each pod or child Job, by UID, so that the sum stays right after they are gone."),
    ] = {}
    succeeded_indexes: Annotated[
        tuple[str, ...],
        describe("Replicas that ended well, such as worker-3, sorted. They are never run again."),
    ] = ()
    scaling: Annotated[
        ScalingStatus | None, describe("How many workers there should be, and since what. Absent without workers.")
    ] = None
    progress: Annotated[
        Progress | None, describe("Steps done and to be done, for a job with autoscaling.totalSteps or .progress.")
    ] = None
    worker_replicas: Annotated[int, describe("Workers that exist; for the scale subresource.", format="int32")] = 0
    worker_selector: Annotated[str, describe("Label selector of the workers' pods; for the scale subresource.")] = ""
    ready: Annotated[
        dict[str, str],
        describe(
            "Ready of wanted replicas, such as 1/1, under master, worker and ps; one that succeeded counts. For "
            "`kubectl get`."
        ),
    ] = {}
    summary: Summary = ""
