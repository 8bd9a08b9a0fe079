"""What the controller says of a TrainJob, and what it must remember of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfjob_controller.api.describe import says
from tfjob_controller.api.trainingstatus import JobCondition, Summary

# `state`, which is empty before the job runs.
STATES = RUNNING, SUCCESS, FAILED = ("RUNNING", "SUCCESS", "FAILED")


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class JobsStatus(_Value, frozen=True, omit_defaults=False):
    """How many pods of one step are how far. The numbers stand there even when they are 0."""

    name: Annotated[str, says("The step, such as node.")]
    replicas: Annotated[int, says("Pods that the step has.", format="int32")] = 0
    ready: Annotated[int, says("Those that are ready.", format="int32")] = 0
    active: Annotated[int, says("Those that wait or run.", format="int32")] = 0
    succeeded: Annotated[int, says("Those that ended well.", format="int32")] = 0
    failed: Annotated[int, says("Those that failed.", format="int32")] = 0
    suspended: Annotated[int, says("Those that a suspended job does not have now.", format="int32")] = 0


class Metric(_Value, frozen=True, omit_defaults=False):
    """The last value of a name in the log of node 0."""

    name: Annotated[str, says("What stands before the equals sign.")]
    value: Annotated[str, says("A number as JSON writes it, or NaN, +Inf or -Inf.")]
    seen_at: Annotated[str, says("When the line was logged, by the node's clock.", format="date-time")]


class TrainJobStatus(_Value, frozen=True):
    """What the controller says of a job."""

    phase: Annotated[
        str, says("Creating, Running, CleanUp, Failed or Done; empty before the controller saw the job.")
    ] = ""
    state: Annotated[str, says("RUNNING, SUCCESS or FAILED; empty before the job runs.")] = ""
    reason: Annotated[str, says("Why, in words a user can act on; also while the job waits.")] = ""
    conditions: Annotated[
        tuple[JobCondition, ...],
        says("Created, Scheduled, Running, Restarting, Suspended, Complete, Failed: standard conditions."),
    ] = ()
    jobs_status: Annotated[tuple[JobsStatus, ...], says("How far the pods of each step are.")] = ()
    restarts: Annotated[int, says("How often all nodes were started anew; maxRestarts limits it.", format="int32")] = 0
    restart_counts: Annotated[
        dict[str, int],
        says("Restarts seen of each pod or child Job, by UID, so that the sum stays right after they are gone."),
    ] = {}
    succeeded_indexes: Annotated[
        tuple[str, ...], says("Pods that ended well, such as node-3, sorted. They are never run again.")
    ] = ()
    observed_generation: Annotated[
        int, says("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, says("When the job was started, or resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, says("When the job ended.", format="date-time")] = None
    metrics: Annotated[
        tuple[Metric, ...], says("The last value of each name of spec.metrics.names in the log of node 0.")
    ] = ()
    progress: Annotated[str, says("How far the training is, such as step 40.")] = ""
    nodes: Annotated[str, says("Nodes that are ready or succeeded, of those wanted, such as 2/2.")] = ""
    runtime: Annotated[str, says("The runtime that the job uses.")] = ""
    summary: Summary = ""
