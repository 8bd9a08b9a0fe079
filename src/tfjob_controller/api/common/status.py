"""What the statuses of several kinds of jobs share on the wire."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.common.schema import describe

# How many metrics a job shows, and how they may be named.
MAX_METRICS = 20
METRIC_NAME = "^[A-Za-z_][A-Za-z0-9_./-]*$"
MAX_METRIC_NAME = 63


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


class Progress(_Value, frozen=True):
    """The steps of the job."""

    done: Annotated[int, describe("The steps done by all workers, including deleted ones.", format="int64")] = 0
    total: Annotated[int, describe("The steps to do: autoscaling.totalSteps.", format="int64")] = 0
    counts: Annotated[
        dict[str, int],
        describe("The steps done by each worker's pod, by UID. Deleted pods stay listed, so that the sum is correct."),
    ] = {}
    ignored: Annotated[str, describe("The first invalid report, and the reason.")] = ""


class Metric(_Value, frozen=True, omit_defaults=False):
    """The last value of one metric, from the log of node 0 or from a report."""

    name: Annotated[str, describe("The text before the equals sign in the log, or the name in the report.")]
    value: Annotated[str, describe("A number as JSON writes it, or NaN, +Inf or -Inf.")]
    log_time: Annotated[
        str, describe("When the line was logged or the report was made, by the node's clock.", format="date-time")
    ] = ""


# Fields of the statuses of TFJobs and TrainJobs.
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
