"""TFJob `kubeflow.org/v1alpha1` as data. Wire names are upstream's.

The descriptions are what `kubectl explain` shows and docs/reference/tfjob.md lists. Absent fields stay absent here:
what they then mean is said by `defaults`, what is allowed by `validation`, how an object is read by `decode`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.common.core import STEPS_ANNOTATION
from tfjob_controller.api.common.schema import INT32_MAX, describe
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.gang import OnTimeout, Priority, TimeoutSeconds
from tfjob_controller.kube.meta import ObjectMeta, Resource

TFJOBS = Resource("kubeflow.org", "v1alpha1", "tfjobs", "TFJob")

MASTER = "MASTER"
WORKER = "WORKER"
PS = "PS"
REPLICA_TYPES = (MASTER, WORKER, PS)

DEFAULT_PORT = 2222
MAX_PORT = 65535
# Every replica gets the addresses of all in one environment variable, and Linux lets one variable have 128 KiB
# (MAX_ARG_STRLEN). 1,000 of each type with the longest names take 124 KiB; more would not start.
MAX_REPLICAS = 1000
# The container whose exit code counts.
CONTAINER_NAME = "tensorflow"
# Upstream's own examples have ids that begin with a digit; ours begin with a letter.
RUNTIME_ID_PATTERN = "^([0-9a-z]{4})?$"

CLEAN_POD_POLICIES = CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE = ("All", "Running", "None")
FAILURE_POLICIES = FAIL_ON_CHIEF, FAIL_ON_ANY = ("Chief", "AnyReplica")
RESTART_POLICIES = ON_FAILURE, NEVER = ("OnFailure", "Never")
RESIZES = IN_PLACE, BY_RESTART = ("InPlace", "Restart")

# What JSON numbers carry exactly everywhere (2^53 - 1).
MAX_STEPS = 2**53 - 1
# Enough for a line of a log; progress.py says what it may hold.
MAX_PATTERN = 200


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ReplicaSpec(_Value, frozen=True):
    """One replica type: how many of it, and what each of them runs."""

    tf_replica_type: Annotated[
        str,
        describe(
            "What these replicas are: MASTER (exactly one; by default its end is the job's end), WORKER or PS "
            "(parameter server). Each type at most once.",
            enum=list(REPLICA_TYPES),
            default=MASTER,
        ),
    ] = MASTER
    replicas: Annotated[
        int | None,
        describe(
            "How many replicas: exactly 1 for MASTER, 0 to 1000 for WORKER and PS. That of WORKER may be changed "
            "while the job runs.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
            default=1,
        ),
    ] = None
    tf_port: Annotated[
        int | None,
        describe(
            "The port on which the TensorFlow server of each replica listens.",
            format="int32",
            minimum=1,
            maximum=MAX_PORT,
            default=DEFAULT_PORT,
        ),
    ] = None
    template: Annotated[
        dict[str, Any] | None,
        describe(
            "The pod of each replica, a PodTemplateSpec. Its container named tensorflow gets TF_CONFIG, and its exit "
            "code counts. Required for MASTER and WORKER; a PS without it runs a standard TensorFlow server.",
        ),
    ] = None


class Chief(_Value, frozen=True):
    """The replica whose end is the job's end."""

    replica_name: Annotated[str, describe("The chief's replica type.", enum=list(REPLICA_TYPES), default=MASTER)] = (
        MASTER
    )
    replica_index: Annotated[
        int, describe("The chief's index within its type.", format="int32", minimum=0, default=0)
    ] = 0


class TerminationPolicy(_Value, frozen=True):
    """When the job ends."""

    chief: Annotated[
        Chief | None,
        describe("The replica whose end is the job's end. Default: MASTER 0, or WORKER 0 for a job without a master."),
    ] = None


class GangScheduling(_Value, frozen=True):
    """Whether the job's replicas run all together or not at all, and how long they may wait for that."""

    enabled: Annotated[
        bool | None,
        describe(
            "True: no pod is created before there is room for all replicas. False: never so. Default: as the "
            "controller's flag --gang-scheduling says. Fixed once the job has started."
        ),
    ] = None
    min_workers: Annotated[
        int | None,
        describe(
            "The least number of workers that the job may start with; the others follow when there is room. Default: "
            "all of them.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    timeout_seconds: TimeoutSeconds = None
    on_timeout: OnTimeout = ""
    priority: Priority = None


class ProgressSource(_Value, frozen=True):
    """How a worker's steps are found in its log."""

    pattern: Annotated[
        str,
        describe(
            "A regular expression with exactly one group, which holds the number of steps that a worker has done since "
            "its pod started, such as `step (\\d+)`. The last line of the log that it matches counts. Without it, the "
            f"program sets the annotation {STEPS_ANNOTATION} on its pod.",
            minLength=1,
            maxLength=MAX_PATTERN,
        ),
    ]


class Autoscaling(_Value, frozen=True):
    """Between which numbers of workers the job may be resized while it runs, and how."""

    max_workers: Annotated[
        int,
        describe(
            "The most workers that the job can use. With resize InPlace, TF_CONFIG lists so many from the start.",
            format="int32",
            minimum=1,
            maximum=MAX_REPLICAS,
        ),
    ]
    min_workers: Annotated[
        int | None,
        describe(
            "The least workers that the job may start and stay with. Default: what gang asks for, or else 1.",
            format="int32",
            minimum=1,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    resize: Annotated[
        str,
        describe(
            "How the number of workers changes while the job runs. InPlace: workers come and go, the others are not "
            "touched (training with parameter servers). Restart: all replicas are stopped and started with the new "
            "TF_CONFIG (synchronous training that resumes from a checkpoint). Default: InPlace. Fixed once the job has "
            "started.",
            enum=list(RESIZES),
        ),
    ] = ""
    total_steps: Annotated[
        int | None,
        describe(
            "Steps that all workers do together. Each worker gets its share as TFJOB_STEPS, and this number as "
            "TFJOB_TOTAL_STEPS. Fixed once the job has started.",
            format="int64",
            minimum=1,
            maximum=MAX_STEPS,
        ),
    ] = None
    progress: Annotated[
        ProgressSource | None, describe("Where a worker's steps are read, if not from its pod's annotation.")
    ] = None


class TFJobSpec(_Value, frozen=True):
    """What the user asks for."""

    runtime_id: Annotated[
        str,
        describe(
            "Four random characters in the names of all children. Set by the controller before the first child exists, "
            "and never changed.",
            pattern=RUNTIME_ID_PATTERN,
        ),
    ] = msgspec.field(name="RuntimeId", default="")
    replica_specs: Annotated[
        tuple[ReplicaSpec, ...],
        describe(
            "The replica types of the job, each at most once. Types, templates, ports and the number of PS are fixed "
            "once the job has started.",
            minItems=1,
            maxItems=len(REPLICA_TYPES),
        ),
    ] = ()
    worker_replicas: Annotated[
        int | None,
        describe(
            "How many workers; overrides the replicas of the WORKER entry. `kubectl scale` writes it. A "
            "HorizontalPodAutoscaler can only act on a job whose manifest sets it.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    tf_image: Annotated[
        str,
        describe(
            "Image of the default parameter server. Default: tfImage of the controller's config file.",
        ),
    ] = ""
    termination_policy: Annotated[
        TerminationPolicy | None, describe("When the job ends. Fixed once the job has started.")
    ] = None
    scheduler_name: Annotated[str, describe("Scheduler of every pod whose template names none of its own.")] = ""
    clean_pod_policy: Annotated[
        str,
        describe(
            "Which pods are deleted when the job has ended: All, Running (those that still run; finished ones stay, "
            "with their logs) or None. Default: Running. Jobs and Services stay until the TFJob goes.",
            enum=list(CLEAN_POD_POLICIES),
        ),
    ] = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        describe(
            "Seconds after its end at which the TFJob is deleted with all its children. Default: never.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    active_deadline_seconds: Annotated[
        int | None,
        describe(
            "Seconds after its start at which a job that has not ended fails. They are counted anew when a suspended "
            "job is resumed. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    backoff_limit: Annotated[
        int | None,
        describe(
            "How many restarts of all replicas together, counted over re-created pods too, a job may have: one more "
            "fails it. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    suspend: Annotated[
        bool, describe("True: no pods run; setting it while the job runs ends them. Default: false.")
    ] = False
    failure_policy: Annotated[
        str,
        describe(
            "Whose permanent error fails the job: Chief, or AnyReplica. Other replicas are started again. "
            "Default: Chief.",
            enum=list(FAILURE_POLICIES),
        ),
    ] = ""
    priority_class_name: Annotated[
        str, describe("PriorityClass of every pod whose template names none of its own.")
    ] = ""
    gang: Annotated[
        GangScheduling | None, describe("Gang scheduling: all replicas at once, or none. Needs the gang scheduler.")
    ] = None
    autoscaling: Annotated[
        Autoscaling | None,
        describe(
            "The job may be resized while it runs: by `kubectl scale`, by a HorizontalPodAutoscaler, or by the gang "
            "scheduler where the controller runs with --autoscaling=on. Default: by `kubectl scale` alone."
        ),
    ] = None


class TFJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: why the object could not be read, naming the field; then spec is empty."""

    metadata: ObjectMeta
    spec: Annotated[TFJobSpec, describe("What the user asks for.")] = TFJobSpec()
    status: Annotated[TrainingStatus, describe("What the controller says of the job.")] = TrainingStatus()
    invalid: str = msgspec.field(name="_invalid", default="")

    @property
    def ttl_seconds_after_finished(self) -> int | None:
        return self.spec.ttl_seconds_after_finished
