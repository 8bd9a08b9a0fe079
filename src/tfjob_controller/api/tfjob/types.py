"""TFJob `kubeflow.org/v1alpha1` as data. The wire names are those of Kubeflow's tf-operator.

`kubectl explain` and docs/reference/tfjob.md show the descriptions. An absent field stays absent here: `defaults` has
its meaning, `validation` the rules, and `api.decode` reads objects.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.common.core import STEPS_ANNOTATION
from tfjob_controller.api.common.managedby import ManagedBy
from tfjob_controller.api.common.policies import CLEAN_POD_POLICIES, RESIZES
from tfjob_controller.api.common.schema import INT32_MAX, SAFE_INTEGER_MAX, describe
from tfjob_controller.api.common.storage import Checkpoint
from tfjob_controller.api.decode import decoder_of
from tfjob_controller.api.gang import OnTimeout, Priority, TimeoutSeconds
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.kube.meta import ObjectMeta, Resource

MASTER = "MASTER"
WORKER = "WORKER"
PS = "PS"
REPLICA_TYPES = (MASTER, WORKER, PS)

DEFAULT_PORT = 2222
MAX_PORT = 65535
# Every replica gets the addresses of all replicas in one environment variable, which Linux limits to 128 KiB
# (MAX_ARG_STRLEN). 1,000 replicas of each type with the longest names take 124 KiB; with more, no container starts.
MAX_REPLICAS = 1000
# The training container: its exit code is the replica's.
CONTAINER_NAME = "tensorflow"
# The examples of tf-operator have ids that begin with a digit; generated ids begin with a letter.
RUNTIME_ID_PATTERN = "^([0-9a-z]{4})?$"

FAILURE_POLICIES = FAIL_ON_CHIEF, FAIL_ON_ANY = ("Chief", "AnyReplica")
# `api.tfjob.progress` describes the syntax.
MAX_PATTERN = 200


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ReplicaSpec(_Value, frozen=True):
    """The replicas of one type: their number, and the pod template of each."""

    tf_replica_type: Annotated[
        str,
        describe(
            "The type of the replicas: MASTER (exactly one; by default the chief), WORKER or PS (parameter server). "
            "Each type can be listed once.",
            enum=list(REPLICA_TYPES),
            default=MASTER,
        ),
    ] = MASTER
    replicas: Annotated[
        int | None,
        describe(
            "The number of replicas: exactly 1 for MASTER, 0 to 1000 for WORKER and PS. The number of workers can be "
            "changed while the job runs.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
            default=1,
        ),
    ] = None
    tf_port: Annotated[
        int | None,
        describe(
            "The port of each replica's TensorFlow server.",
            format="int32",
            minimum=1,
            maximum=MAX_PORT,
            default=DEFAULT_PORT,
        ),
    ] = None
    template: Annotated[
        dict[str, Any] | None,
        describe(
            "The PodTemplateSpec of each replica. Its container named tensorflow gets TF_CONFIG, and its exit code is "
            "the replica's. Required for MASTER and WORKER. A PS without a template, without this container or without "
            "an image in it runs a standard TensorFlow server.",
        ),
    ] = None


class Chief(_Value, frozen=True):
    """The replica whose completion completes the job."""

    replica_name: Annotated[str, describe("The chief's replica type.", enum=list(REPLICA_TYPES), default=MASTER)] = (
        MASTER
    )
    replica_index: Annotated[
        int, describe("The chief's index within its type.", format="int32", minimum=0, default=0)
    ] = 0


class TerminationPolicy(_Value, frozen=True):
    """The condition under which the job completes."""

    chief: Annotated[
        Chief | None,
        describe(
            "The replica whose completion completes the job. Default: MASTER 0, or WORKER 0 for a job without a master."
        ),
    ] = None


class GangScheduling(_Value, frozen=True):
    """Whether the job's replicas start all together or not at all, and how long they may wait for capacity."""

    enabled: Annotated[
        bool | None,
        describe(
            "True: no pod is created before there is capacity for all replicas. False: pods are created at once. "
            "Default: the controller's flag --gang-scheduling decides. Cannot change once the job has started."
        ),
    ] = None
    min_workers: Annotated[
        int | None,
        describe(
            "The minimum number of workers that the job can start with; the others start when there is capacity. "
            "Default: all of them.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    timeout_seconds: TimeoutSeconds = None
    on_timeout: OnTimeout = ""
    priority: Priority = None


class ProgressSource(_Value, frozen=True):
    """How the steps of a worker are read from its log."""

    pattern: Annotated[
        str,
        describe(
            "A regular expression with exactly one group, which matches the number of steps that a worker has done "
            "since its pod started, such as `step (\\d+)`. The last matching line of the log counts. Without a "
            f"pattern, the program sets the annotation {STEPS_ANNOTATION} on its pod.",
            minLength=1,
            maxLength=MAX_PATTERN,
        ),
    ]


class Autoscaling(_Value, frozen=True):
    """The minimum and maximum number of workers of a running job, and how it is resized."""

    max_workers: Annotated[
        int,
        describe(
            "The maximum number of workers. With resize InPlace, TF_CONFIG lists this number from the start.",
            format="int32",
            minimum=1,
            maximum=MAX_REPLICAS,
        ),
    ]
    min_workers: Annotated[
        int | None,
        describe(
            "The minimum number of workers for the start and while the job runs. Default: gang.minWorkers, or else 1.",
            format="int32",
            minimum=1,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    resize: Annotated[
        str,
        describe(
            "How the number of workers changes while the job runs. InPlace: workers are added or deleted, and the "
            "others keep running (training with parameter servers). Restart: all replicas are restarted with the new "
            "TF_CONFIG (synchronous training that resumes from a checkpoint). Default: InPlace. Cannot change once the "
            "job has started.",
            enum=list(RESIZES),
        ),
    ] = ""
    total_steps: Annotated[
        int | None,
        describe(
            "The number of steps of all workers together. Each worker gets its share as TFJOB_STEPS, and this number "
            "as TFJOB_TOTAL_STEPS. Cannot change once the job has started.",
            format="int64",
            minimum=1,
            maximum=SAFE_INTEGER_MAX,
        ),
    ] = None
    progress: Annotated[
        ProgressSource | None, describe("How a worker's steps are read, if not from its pod's annotation.")
    ] = None


class TFJobSpec(_Value, frozen=True):
    """The desired state of a TFJob."""

    runtime_id: Annotated[
        str,
        describe(
            "Four random characters in the names of all children. The controller sets them before it creates the first "
            "child, and they never change.",
            pattern=RUNTIME_ID_PATTERN,
        ),
    ] = msgspec.field(name="RuntimeId", default="")
    replica_specs: Annotated[
        tuple[ReplicaSpec, ...],
        describe(
            "The replica types of the job, each at most once. Types, templates, ports and the number of PS cannot "
            "change once the job has started.",
            minItems=1,
            maxItems=len(REPLICA_TYPES),
        ),
    ] = ()
    worker_replicas: Annotated[
        int | None,
        describe(
            "The number of workers; overrides the replicas of the WORKER entry. `kubectl scale` writes it. A "
            "HorizontalPodAutoscaler can scale only a job whose manifest sets it.",
            format="int32",
            minimum=0,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    tf_image: Annotated[
        str,
        describe(
            "The image of the default parameter server. Default: tfImage of the controller's config file.",
        ),
    ] = ""
    termination_policy: Annotated[
        TerminationPolicy | None,
        describe("The condition under which the job completes. Cannot change once the job has started."),
    ] = None
    scheduler_name: Annotated[str, describe("The scheduler of every pod whose template names none.")] = ""
    clean_pod_policy: Annotated[
        str,
        describe(
            "The pods to delete when the job has finished: All, Running (finished pods stay, with their logs) or None. "
            "Default: Running. Jobs and Services are kept until the TFJob is deleted.",
            enum=list(CLEAN_POD_POLICIES),
        ),
    ] = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        describe(
            "The seconds between the end of the TFJob and its deletion with all its children. Default: never.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    active_deadline_seconds: Annotated[
        int | None,
        describe(
            "The seconds that the job may run before it fails. They count again from 0 when a suspended job is "
            "resumed. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    backoff_limit: Annotated[
        int | None,
        describe(
            "The number of restarts, summed over all replicas and their recreated pods, after which the next one fails "
            "the job. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    suspend: Annotated[
        bool, describe("True: the job has no pods; those of a running job are deleted. Default: false.")
    ] = False
    managed_by: ManagedBy = ""
    failure_policy: Annotated[
        str,
        describe(
            "The replicas whose permanent error fails the job: Chief, or AnyReplica. Other replicas are restarted. "
            "Default: Chief.",
            enum=list(FAILURE_POLICIES),
        ),
    ] = ""
    priority_class_name: Annotated[str, describe("The PriorityClass of every pod whose template names none.")] = ""
    gang: Annotated[
        GangScheduling | None,
        describe("Gang scheduling: all replicas start at once, or none. Requires the gang scheduler."),
    ] = None
    autoscaling: Annotated[
        Autoscaling | None,
        describe(
            "The limits within which a running job can be resized: by `kubectl scale`, by a HorizontalPodAutoscaler, "
            "or by the gang scheduler if the controller runs with --autoscaling=on. Default: only `kubectl scale` "
            "resizes it."
        ),
    ] = None
    checkpoint: Annotated[
        Checkpoint | None,
        describe(
            "The storage to which the chief's checkpoints are saved while the job runs, and from which they are "
            "restored before the master and the workers start. Cannot change once the job has started. Default: no "
            "checkpoints are saved."
        ),
    ] = None


class TFJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: the reason why the object cannot be decoded; the spec is then empty."""

    metadata: ObjectMeta
    spec: Annotated[TFJobSpec, describe("The desired state of the job.")] = TFJobSpec()
    status: Annotated[TFJobStatus, describe("The observed state of the job. The controller writes it.")] = TFJobStatus()
    invalid: str = msgspec.field(name="_invalid", default="")


TFJOBS = Resource(
    "kubeflow.org",
    "v1alpha1",
    "tfjobs",
    "TFJob",
    decoder_of(TFJob),
    alternative="add TFJob to --kubeflow-v1-api if the CRD of this cluster has v1",
)
