"""TrainJob `kubeflow.org/v2alpha1` as data: one kind for every framework.

`kubectl explain` and docs/reference/trainjob.md show the descriptions. An absent field stays absent here: `defaults`
has its meaning and `validation` the rules. Environment variables,
volumes and other parts of pods are kept as they are.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.common.managedby import ManagedBy
from tfjob_controller.api.common.schema import (
    A_FRAMEWORK,
    A_NAME,
    INT32_MAX,
    MAX_LABEL_VALUE,
    describe,
)
from tfjob_controller.api.common.status import (
    MAX_METRICS,
    Disruptions,
    JobCondition,
    LastCheckpoint,
    Metric,
    RestartCounts,
    Summary,
)
from tfjob_controller.api.common.storage import MAX_ENV, Checkpoint, DatasetConfig, ModelConfig
from tfjob_controller.api.common.trainerstatus import TrainerStatus
from tfjob_controller.api.decode import decoder_of
from tfjob_controller.api.gang import OnTimeout, Priority, TimeoutSeconds
from tfjob_controller.kube.meta import ObjectMeta, Resource
from tfjob_controller.kube.names import MAX_NAME

# The steps of a job. Their pods are named after them, and so is the container whose exit code is the pod's.
NODE = "node"
LAUNCHER = "launcher"
DATASET_INITIALIZER = "dataset-initializer"
MODEL_INITIALIZER = "model-initializer"
MODEL_EXPORTER = "model-exporter"
ROLES = (NODE, LAUNCHER, DATASET_INITIALIZER, MODEL_INITIALIZER, MODEL_EXPORTER)

# Names the framework of a job whose spec does not.
FRAMEWORK_ANNOTATION = "kubeflow.org/framework"
# The frameworks of this project; packages can add others by entry points.
FRAMEWORKS = TORCH, TENSORFLOW, JAX, XGBOOST, MPI, PLAIN = ("torch", "tensorflow", "jax", "xgboost", "mpi", "plain")

API_GROUP = "kubeflow.org"
RUNTIME_KINDS = NAMESPACED_RUNTIME, CLUSTER_RUNTIME = ("TrainingRuntime", "ClusterTrainingRuntime")

# Values of `numProcPerNode` other than numbers.
PROC_WORDS = PROC_AUTO, PROC_CPU, PROC_GPU = ("auto", "cpu", "gpu")

# The nodes are one Indexed Job, so that few objects grow with their number; frameworks may have lower limits.
MAX_NODES = 5000
MAX_AUTOSCALER_METRICS = 10
MAX_PROCS = 1024
DEFAULT_METRICS = ("loss", "accuracy", "throughput", "step", "epoch")
# Limits of lists that CEL rules iterate over: the API server rejects rules whose estimated cost is too high.
MAX_OVERRIDES = 16
MAX_CONTAINERS = 16
MAX_MOUNTS = 64
MAX_LABELS = 64
# Kubernetes 1.33 estimates the CEL rule on quantities by the longest string that a request can hold, whatever maxLength
# says, and accepts no CRD with a higher bound.
MAX_RESOURCES = 15

# Values of `status.state`, which is empty before the job runs.
RUNNING, SUCCESS, FAILED = "RUNNING", "SUCCESS", "FAILED"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ResourcesPerNode(_Value, frozen=True):
    """The resources of the training container of one node."""

    requests: Annotated[
        dict[str, int | str], describe("The requests, as quantities by resource name.", maxProperties=MAX_RESOURCES)
    ] = {}
    limits: Annotated[
        dict[str, int | str],
        describe("The limits, as quantities by resource name.", maxProperties=MAX_RESOURCES),
    ] = {}


class Trainer(_Value, frozen=True):
    """The training program, which runs on every node."""

    num_nodes: Annotated[
        int | None,
        describe(
            "Another name for spec.numNodes; if both are set, they must be equal.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    image: Annotated[str, describe("The image. Required unless the runtime has one.")] = ""
    command: Annotated[
        tuple[str, ...], describe("The program and its first arguments. Default: the runtime's, or else the image's.")
    ] = ()
    args: Annotated[tuple[str, ...], describe("Its arguments. Default: the runtime's, or else the image's.")] = ()
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe(
            "Environment variables, as in a container; they override the runtime's by name. Variables that frameworks "
            "set, such as PET_NNODES, RANK or TF_CONFIG, are not allowed.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    resources_per_node: Annotated[
        ResourcesPerNode, describe("The requests and limits of each node. Default: the runtime's.")
    ] = ResourcesPerNode()
    num_proc_per_node: Annotated[
        int | str | None,
        describe(
            "The training processes on each node: a number, cpu (one per CPU), gpu (one per GPU or other accelerator) "
            "or auto. With auto, there is one per accelerator; without any, torch has one per CPU and other frameworks "
            "have one. Default: the runtime's, or else auto."
        ),
    ] = None


class RuntimeRef(_Value, frozen=True):
    """A reference to a runtime, which has default values for the job."""

    name: Annotated[str, describe("The runtime's name.", minLength=1, **A_NAME)]
    kind: Annotated[
        str,
        describe(
            "ClusterTrainingRuntime, or TrainingRuntime, which is in the job's namespace.",
            enum=list(RUNTIME_KINDS),
            default=CLUSTER_RUNTIME,
        ),
    ] = CLUSTER_RUNTIME
    api_group: Annotated[str, describe("The runtime's API group.", enum=[API_GROUP], default=API_GROUP)] = API_GROUP


class TargetJob(_Value, frozen=True):
    """One step of the job."""

    name: Annotated[str, describe("The name of the step.", enum=list(ROLES))]


class ContainerOverride(_Value, frozen=True):
    """Additions to one container."""

    name: Annotated[
        str,
        describe(
            "The name of the container: the name of the step, or of another container in the runtime's template.",
            minLength=1,
            maxLength=MAX_LABEL_VALUE,
        ),
    ]
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe(
            "Environment variables, as in a container. They override the runtime's by name; those in trainer, "
            "modelConfig and datasetConfig override them.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    volume_mounts: Annotated[
        tuple[dict[str, Any], ...], describe("Volume mounts, as in a container.", maxItems=MAX_MOUNTS)
    ] = ()


class PodSpecOverride(_Value, frozen=True):
    """Overrides of the runtime for the pods of some steps."""

    target_jobs: Annotated[
        tuple[TargetJob, ...], describe("The steps whose pods are overridden.", minItems=1, maxItems=len(ROLES))
    ]
    service_account_name: Annotated[str, describe("The service account of the pods.", **A_NAME)] = ""
    node_selector: Annotated[dict[str, str], describe("The node selector of the pods.", maxProperties=MAX_LABELS)] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], describe("The tolerations of the pods.", maxItems=MAX_LABELS)
    ] = ()
    affinity: Annotated[dict[str, Any] | None, describe("The affinity of the pods.")] = None
    volumes: Annotated[
        tuple[dict[str, Any], ...], describe("Additional volumes of the pods.", maxItems=MAX_MOUNTS)
    ] = ()
    image_pull_secrets: Annotated[
        tuple[dict[str, Any], ...], describe("The imagePullSecrets of the pods.", maxItems=MAX_CONTAINERS)
    ] = ()
    priority_class_name: Annotated[str, describe("The PriorityClass of the pods.", maxLength=MAX_NAME)] = ""
    scheduler_name: Annotated[str, describe("The scheduler of the pods.", maxLength=MAX_NAME)] = ""
    containers: Annotated[
        tuple[ContainerOverride, ...], describe("Additions to the containers.", maxItems=MAX_CONTAINERS)
    ] = ()
    init_containers: Annotated[
        tuple[ContainerOverride, ...], describe("Additions to the init containers.", maxItems=MAX_CONTAINERS)
    ] = ()


class TrainJobGang(_Value, frozen=True):
    """Whether the job's nodes start all together or not at all, and how long they may wait for capacity."""

    enabled: Annotated[
        bool | None,
        describe(
            "True: no node starts before there is capacity for all of them. False: nodes start at once. Default: the "
            "controller's flag --gang-scheduling decides. Cannot change once the job has started."
        ),
    ] = None
    timeout_seconds: TimeoutSeconds = None
    on_timeout: OnTimeout = ""
    priority: Priority = None


class ElasticPolicy(_Value, frozen=True):
    """The minimum and maximum number of nodes of a job that can be resized while it runs."""

    min_nodes: Annotated[
        int,
        describe(
            "The minimum number of nodes that training needs. Cannot change once the job has started.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ]
    max_nodes: Annotated[
        int,
        describe(
            "The maximum number of nodes. Cannot change once the job has started.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ]
    metrics: Annotated[
        tuple[dict[str, Any], ...],
        describe(
            "Metrics as in a HorizontalPodAutoscaler (autoscaling/v2). If there are any, the controller creates "
            "such an object with the name of the job, which resizes the job within these bounds.",
            maxItems=MAX_AUTOSCALER_METRICS,
        ),
    ] = ()


class MetricsSource(_Value, frozen=True):
    """The metrics that are read from the log of node 0."""

    names: Annotated[
        tuple[str, ...],
        describe(
            "The names of metrics. The last value of each, logged as name=value, is in the status and at /metrics. "
            "With an empty list, the log is not read.",
            maxItems=MAX_METRICS,
        ),
    ] = ()


class TrainJobSpec(_Value, frozen=True):
    """The desired state of a TrainJob."""

    num_nodes: Annotated[
        int | None,
        describe(
            "The number of nodes, which are pods, that train together. Required unless the runtime has it. In a job "
            "with elasticPolicy it can be changed while the job runs; `kubectl scale` and autoscalers write it, and "
            "the default is the runtime's, within the bounds, or else minNodes.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    trainer: Annotated[Trainer, describe("The training program, which runs on every node.")] = Trainer()
    elastic_policy: Annotated[
        ElasticPolicy | None,
        describe(
            "The limits within which a running job of framework torch can be resized. Default: the number of nodes "
            "cannot change once the job has started."
        ),
    ] = None
    model_config: Annotated[
        ModelConfig | None, describe("The model to start with, and the target of the trained model.")
    ] = None
    dataset_config: Annotated[DatasetConfig | None, describe("The dataset.")] = None
    runtime_ref: Annotated[
        RuntimeRef | None,
        describe(
            "The runtime, which has default values for the job. It cannot change. Default: torch-distributed for "
            "torchrun, mpi-distributed for mpirun and horovodrun, or else the runtime of the framework."
        ),
    ] = None
    framework: Annotated[
        str,
        describe(
            "The framework, which determines how the nodes find each other, if neither the runtime nor the command "
            "(torchrun, mpirun) determines it: torch, tensorflow, jax, xgboost, mpi, plain (not at all), or an added "
            f"one. The annotation {FRAMEWORK_ANNOTATION} can be used instead. Default: plain.",
            **A_FRAMEWORK,
        ),
    ] = ""
    checkpoint: Annotated[
        Checkpoint | None,
        describe(
            "The storage to which checkpoints are saved while the job runs, and from which they are restored before "
            "its nodes start. Default: no checkpoints are saved."
        ),
    ] = None
    pod_spec_overrides: Annotated[
        tuple[PodSpecOverride, ...],
        describe(
            "Overrides of the runtime for the pods of some steps, in order: later entries take precedence. "
            "trainer, modelConfig and datasetConfig override all of them.",
            maxItems=MAX_OVERRIDES,
        ),
    ] = ()
    labels: Annotated[dict[str, str], describe("Labels of all children.", maxProperties=MAX_LABELS)] = {}
    annotations: Annotated[dict[str, str], describe("Annotations of all children.", maxProperties=MAX_LABELS)] = {}
    suspend: Annotated[
        bool, describe("True: the job has no pods; those of a running job are deleted. Default: false.")
    ] = False
    managed_by: ManagedBy = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        describe(
            "The seconds between the end of the TrainJob and its deletion with all its children. Default: never.",
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
    max_restarts: Annotated[
        int | None,
        describe(
            "The number of restarts of all nodes after retryable errors, after which the next one fails the job. In "
            "an elastic job, restarts of single nodes count as well. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    gang: Annotated[
        TrainJobGang | None, describe("Gang scheduling: all nodes start at once, or none. Requires the gang scheduler.")
    ] = None
    metrics: Annotated[
        MetricsSource | None,
        describe("The metrics in the log of node 0. Default: loss, accuracy, throughput, step and epoch."),
    ] = None


class JobsStatus(_Value, frozen=True, omit_defaults=False):
    """The pods of one step by state. The numbers are on the wire even if they are 0."""

    name: Annotated[str, describe("The step, such as node.")]
    replicas: Annotated[int, describe("The pods of the step.", format="int32")] = 0
    ready: Annotated[int, describe("The ready pods.", format="int32")] = 0
    active: Annotated[int, describe("The pending and running pods.", format="int32")] = 0
    succeeded: Annotated[int, describe("The succeeded pods.", format="int32")] = 0
    failed: Annotated[int, describe("The failed pods.", format="int32")] = 0
    suspended: Annotated[int, describe("The pods that the step lacks while the job is suspended.", format="int32")] = 0


class NodeScaling(_Value, frozen=True):
    """The number of nodes that an elastic job should have, and the last change of it."""

    nodes: Annotated[int, describe("The number of nodes that the job should have.", format="int32")] = 0
    before: Annotated[
        int, describe("The number before the last resize; 0 if the job was never resized.", format="int32")
    ] = 0
    target: Annotated[
        int, describe("The number of nodes that the autoscaler requests now; 0 without a request.", format="int32")
    ] = 0
    target_reason: Annotated[str, describe("The reason of this request.")] = ""
    reason: Annotated[
        str, describe("The reason of the last resize by the autoscaler; empty if the last resize was not its own.")
    ] = ""
    attempt: Annotated[int, describe("The number of restarts of all nodes together.", format="int32")] = 0


class TrainJobStatus(_Value, frozen=True):
    """The observed state of a TrainJob."""

    phase: Annotated[str, describe("Creating, Running, CleanUp, Failed or Done; empty before the first sync.")] = ""
    state: Annotated[str, describe("RUNNING, SUCCESS or FAILED; empty before the job runs.")] = ""
    reason: Annotated[str, describe("The reason for the phase or for the wait of the job, with the remedy.")] = ""
    conditions: Annotated[
        tuple[JobCondition, ...],
        describe(
            "Created, Scheduled, Preempted, Running, Resizing, Restarting, Suspended, ChangesReverted, Complete, "
            "Failed: standard conditions."
        ),
    ] = ()
    jobs_status: Annotated[tuple[JobsStatus, ...], describe("The pods of each step by state.")] = ()
    restarts: Annotated[
        int,
        describe(
            "The restarts of all nodes, and in an elastic job also those of single nodes.",
            format="int32",
        ),
    ] = 0
    disruptions: Disruptions = 0
    restart_counts: RestartCounts = {}
    succeeded_indexes: Annotated[
        tuple[str, ...], describe("The pods that succeeded, such as node-3, sorted. They are not started again.")
    ] = ()
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    start_time: Annotated[str | None, describe("When the job was started or last resumed.", format="date-time")] = None
    completion_time: Annotated[str | None, describe("When the job finished.", format="date-time")] = None
    metrics: Annotated[
        tuple[Metric, ...],
        describe(
            "The last values of metrics: numbers that the program reported to the progress server, and those of "
            "spec.metrics.names in the log of node 0."
        ),
    ] = ()
    progress: Annotated[str, describe("The progress of the training, such as step 40, or 40 %, about 5m left.")] = ""
    trainer_status: Annotated[
        TrainerStatus | None,
        describe(
            "The last report of the training program to the progress server. Its metrics replace those in the log."
        ),
    ] = None
    nodes: Annotated[str, describe("Ready or succeeded nodes, and desired nodes, such as 2/2.")] = ""
    scaling: Annotated[
        NodeScaling | None,
        describe("The desired number of nodes and its last change. Absent without elasticPolicy."),
    ] = None
    current_nodes: Annotated[
        int, describe("The number of existing nodes of an elastic job, for the scale subresource.", format="int32")
    ] = 0
    selector: Annotated[
        str, describe("The label selector of the nodes' pods of an elastic job, for the scale subresource.")
    ] = ""
    runtime: Annotated[str, describe("The runtime that the job uses.")] = ""
    checkpoint: LastCheckpoint = None
    summary: Summary = ""


class TrainJobAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotations that the controller reads."""

    framework: str = msgspec.field(default="", name=FRAMEWORK_ANNOTATION)


class TrainJobMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    annotations: TrainJobAnnotations = TrainJobAnnotations()


class TrainJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: the reason why the object cannot be decoded; the spec is then empty."""

    metadata: TrainJobMeta
    spec: Annotated[TrainJobSpec, describe("The desired state of the job.")] = TrainJobSpec()
    status: Annotated[TrainJobStatus, describe("The observed state of the job. The controller writes it.")] = (
        TrainJobStatus()
    )
    invalid: str = msgspec.field(name="_invalid", default="")


TRAINJOBS = Resource("kubeflow.org", "v2alpha1", "trainjobs", "TrainJob", decoder_of(TrainJob))
