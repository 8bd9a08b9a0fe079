"""What the controller says of a TrainJob, and what it must remember of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfjob_controller.api.common.schema import describe
from tfjob_controller.api.common.status import JobCondition, Summary

# `state`, which is empty before the job runs.
STATES = RUNNING, SUCCESS, FAILED = ("RUNNING", "SUCCESS", "FAILED")


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class JobsStatus(_Value, frozen=True, omit_defaults=False):
    """How many pods of one step are how far. The numbers stand there even when they are 0."""

    name: Annotated[str, describe("The step, such as node.")]
    replicas: Annotated[int, describe("Pods that the step has.", format="int32")] = 0
    ready: Annotated[int, describe("Those that are ready.", format="int32")] = 0
    active: Annotated[int, describe("Those that wait or run.", format="int32")] = 0
    succeeded: Annotated[int, describe("Those that ended well.", format="int32")] = 0
    failed: Annotated[int, describe("Those that failed.", format="int32")] = 0
    suspended: Annotated[int, describe("Those that a suspended job does not have now.", format="int32")] = 0


class Metric(_Value, frozen=True, omit_defaults=False):
    """The last value of a name in the log of node 0."""

    name: Annotated[str, describe("What stands before the equals sign.")]
    value: Annotated[str, describe("A number as JSON writes it, or NaN, +Inf or -Inf.")]
    seen_at: Annotated[str, describe("When the line was logged, by the node's clock.", format="date-time")]


class TrainJobStatus(_Value, frozen=True):
    """What the controller says of a job."""

    phase: Annotated[
        str, describe("Creating, Running, CleanUp, Failed or Done; empty before the controller saw the job.")
    ] = ""
    state: Annotated[str, describe("RUNNING, SUCCESS or FAILED; empty before the job runs.")] = ""
    reason: Annotated[str, describe("Why, in words a user can act on; also while the job waits.")] = ""
    conditions: Annotated[
        tuple[JobCondition, ...],
        describe("Created, Scheduled, Running, Restarting, Suspended, Complete, Failed: standard conditions."),
    ] = ()
    jobs_status: Annotated[tuple[JobsStatus, ...], describe("How far the pods of each step are.")] = ()
    restarts: Annotated[
        int, describe("How often all nodes were started anew; maxRestarts limits it.", format="int32")
    ] = 0
    restart_counts: Annotated[
        dict[str, int],
        describe("Restarts seen of each pod or child Job, by UID, so that the sum stays right after they are gone."),
    ] = {}
    succeeded_indexes: Annotated[
        tuple[str, ...], describe("Pods that ended well, such as node-3, sorted. They are never run again.")
    ] = ()
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, describe("When the job was started, or resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, describe("When the job ended.", format="date-time")] = None
    metrics: Annotated[
        tuple[Metric, ...], describe("The last value of each name of spec.metrics.names in the log of node 0.")
    ] = ()
    progress: Annotated[str, describe("How far the training is, such as step 40.")] = ""
    nodes: Annotated[str, describe("Nodes that are ready or succeeded, of those wanted, such as 2/2.")] = ""
    runtime: Annotated[str, describe("The runtime that the job uses.")] = ""
    summary: Summary = ""
