"""The status of a TrainJob: what the controller reports of it, and what it must remember between syncs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfjob_controller.api.common.schema import describe
from tfjob_controller.api.common.status import JobCondition, Summary

# Values of `state`, which is empty before the job runs.
STATES = RUNNING, SUCCESS, FAILED = ("RUNNING", "SUCCESS", "FAILED")


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class JobsStatus(_Value, frozen=True, omit_defaults=False):
    """The pods of one step by state. The numbers are on the wire even if they are 0."""

    name: Annotated[str, describe("The step, such as node.")]
    replicas: Annotated[int, describe("The pods of the step.", format="int32")] = 0
    ready: Annotated[int, describe("The ready pods.", format="int32")] = 0
    active: Annotated[int, describe("The pending and running pods.", format="int32")] = 0
    succeeded: Annotated[int, describe("The succeeded pods.", format="int32")] = 0
    failed: Annotated[int, describe("The failed pods.", format="int32")] = 0
    suspended: Annotated[int, describe("The pods that the step lacks while the job is suspended.", format="int32")] = 0


class Metric(_Value, frozen=True, omit_defaults=False):
    """The last value of one metric in the log of node 0."""

    name: Annotated[str, describe("The text before the equals sign.")]
    value: Annotated[str, describe("A number as JSON writes it, or NaN, +Inf or -Inf.")]
    log_time: Annotated[str, describe("When the line was logged, by the node's clock.", format="date-time")] = ""


class TrainJobStatus(_Value, frozen=True):
    """The observed state of a TrainJob."""

    phase: Annotated[str, describe("Creating, Running, CleanUp, Failed or Done; empty before the first sync.")] = ""
    state: Annotated[str, describe("RUNNING, SUCCESS or FAILED; empty before the job runs.")] = ""
    reason: Annotated[str, describe("Why the job is in this phase or waits, and what would change that.")] = ""
    conditions: Annotated[
        tuple[JobCondition, ...],
        describe("Created, Scheduled, Running, Restarting, Suspended, Complete, Failed: standard conditions."),
    ] = ()
    jobs_status: Annotated[tuple[JobsStatus, ...], describe("The pods of each step by state.")] = ()
    restarts: Annotated[int, describe("The restarts of all nodes; maxRestarts limits them.", format="int32")] = 0
    restart_counts: Annotated[
        dict[str, int],
        describe("The restarts of each pod or child Job, by UID. Deleted ones stay listed, so that the sum is right."),
    ] = {}
    succeeded_indexes: Annotated[
        tuple[str, ...], describe("The pods that succeeded, such as node-3, sorted. They are not started again.")
    ] = ()
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, describe("When the job was started or last resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, describe("When the job finished.", format="date-time")] = None
    metrics: Annotated[
        tuple[Metric, ...], describe("The last value of each name of spec.metrics.names in the log of node 0.")
    ] = ()
    progress: Annotated[str, describe("The progress of the training, such as step 40.")] = ""
    nodes: Annotated[str, describe("Ready or succeeded nodes, and desired nodes, such as 2/2.")] = ""
    runtime: Annotated[str, describe("The runtime that the job uses.")] = ""
    summary: Summary = ""
