"""TrainJob `kubeflow.org/v2alpha1` as data: one kind for every framework.

The descriptions are what `kubectl explain` shows and docs/reference/trainjob.md lists. Absent fields stay absent here:
what they then mean is said by `trainjobdefaults`, what is allowed by `trainjobvalidation`. What the controller writes
stands in `trainjobstatus`. Environment variables, volumes and the like are Kubernetes' own and stay as they are.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.describe import (
    A_FRAMEWORK,
    A_NAME,
    A_PREFIXED_NAME,
    INT32_MAX,
    MAX_LABEL_VALUE,
    MAX_NAME,
    says,
)
from tfjob_controller.api.gang import OnTimeout, Priority, TimeoutSeconds
from tfjob_controller.api.trainjobstatus import TrainJobStatus
from tfjob_controller.api.trainstorage import MAX_ENV, DatasetConfig, ModelConfig
from tfjob_controller.kube.meta import ObjectMeta, Resource

TRAINJOBS = Resource("kubeflow.org", "v2alpha1", "trainjobs", "TrainJob")

# The steps of a job: what their pods are called by, and the container of each whose exit code counts.
NODE = "node"
LAUNCHER = "launcher"
DATASET_INITIALIZER = "dataset-initializer"
MODEL_INITIALIZER = "model-initializer"
MODEL_EXPORTER = "model-exporter"
ROLES = (NODE, LAUNCHER, DATASET_INITIALIZER, MODEL_INITIALIZER, MODEL_EXPORTER)

# Says the framework of a job that does not name one in its spec.
FRAMEWORK_ANNOTATION = "kubeflow.org/framework"
# Those that come with this project; others are found as entry points, so that no list of them can be complete.
FRAMEWORKS = TORCH, TENSORFLOW, JAX, XGBOOST, MPI, PLAIN = ("torch", "tensorflow", "jax", "xgboost", "mpi", "plain")

API_GROUP = "kubeflow.org"
# What `managedBy` may say, beside nothing, of a job that this controller runs.
MANAGED_HERE = "kubeflow.org/tfjob-controller"
RUNTIME_KINDS = NAMESPACED_RUNTIME, CLUSTER_RUNTIME = ("TrainingRuntime", "ClusterTrainingRuntime")

# What `numProcPerNode` may be beside a number.
PROC_WORDS = PROC_AUTO, PROC_CPU, PROC_GPU = ("auto", "cpu", "gpu")

# A job's nodes know each other's addresses from one variable (see tfjob.MAX_REPLICAS).
MAX_NODES = 1000
MAX_PROCS = 1024
MAX_METRICS = 20
DEFAULT_METRICS = ("loss", "accuracy", "throughput", "step", "epoch")
# Longest of what the API server's rules walk through: it refuses rules that could take too long.
MAX_OVERRIDES = 16
MAX_CONTAINERS = 16
MAX_MOUNTS = 64
MAX_LABELS = 64

METRIC_NAME = "^[A-Za-z_][A-Za-z0-9_./-]*$"
MAX_METRIC_NAME = 63


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class ResourcesPerNode(_Value, frozen=True):
    """What the training container of one node gets."""

    requests: Annotated[
        dict[str, int | str], says("What it asks for, as quantities by resource name.", maxProperties=MAX_LABELS)
    ] = {}
    limits: Annotated[
        dict[str, int | str], says("What it gets at most, as quantities by resource name.", maxProperties=MAX_LABELS)
    ] = {}


class Trainer(_Value, frozen=True):
    """The training program, which runs on every node."""

    num_nodes: Annotated[
        int | None,
        says(
            "Another name for spec.numNodes; both may stand there if they say the same.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    image: Annotated[str, says("The image. Required unless the runtime gives one.")] = ""
    command: Annotated[
        tuple[str, ...], says("The program and its first arguments. Default: the runtime's, or else the image's.")
    ] = ()
    args: Annotated[tuple[str, ...], says("Its arguments. Default: the runtime's, or else the image's.")] = ()
    env: Annotated[
        tuple[dict[str, Any], ...],
        says(
            "Environment variables, as in a container; they override the runtime's by name. The variables that the "
            "frameworks set, such as PET_NNODES, RANK or TF_CONFIG, cannot be set here.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    resources_per_node: Annotated[
        ResourcesPerNode, says("What each node requests and may use. Default: the runtime's.")
    ] = ResourcesPerNode()
    num_proc_per_node: Annotated[
        int | str | None,
        says(
            "Training processes on each node: a number, cpu (one for each CPU), gpu (one for each GPU), or auto: one "
            "for each GPU; without GPUs one for each CPU with torch, and one with other frameworks. Default: the "
            "runtime's, or else auto."
        ),
    ] = None


class RuntimeRef(_Value, frozen=True):
    """A runtime: what the job leaves out is taken from there."""

    name: Annotated[str, says("The runtime's name.", minLength=1, **A_NAME)]
    kind: Annotated[
        str,
        says(
            "TrainingRuntime, in the job's namespace, or ClusterTrainingRuntime.",
            enum=list(RUNTIME_KINDS),
            default=CLUSTER_RUNTIME,
        ),
    ] = CLUSTER_RUNTIME
    api_group: Annotated[str, says("The runtime's API group.", enum=[API_GROUP], default=API_GROUP)] = API_GROUP


class TargetJob(_Value, frozen=True):
    """One step of the job."""

    name: Annotated[str, says("The step whose pods are meant.", enum=list(ROLES))]


class ContainerOverride(_Value, frozen=True):
    """What is added to one container."""

    name: Annotated[
        str,
        says(
            "The container's name: that of the step, or of another one in the runtime's template.",
            minLength=1,
            maxLength=MAX_LABEL_VALUE,
        ),
    ]
    env: Annotated[
        tuple[dict[str, Any], ...],
        says(
            "Environment variables, as in a container; those of the runtime are overridden by name, those that the job "
            "sets elsewhere win.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    volume_mounts: Annotated[
        tuple[dict[str, Any], ...], says("Volume mounts, as in a container.", maxItems=MAX_MOUNTS)
    ] = ()


class PodSpecOverride(_Value, frozen=True):
    """What the pods of some steps have otherwise than in the runtime."""

    target_jobs: Annotated[
        tuple[TargetJob, ...], says("The steps whose pods are meant.", minItems=1, maxItems=len(ROLES))
    ]
    service_account_name: Annotated[str, says("Their service account.", **A_NAME)] = ""
    node_selector: Annotated[dict[str, str], says("Labels that their nodes must have.", maxProperties=MAX_LABELS)] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], says("Taints that they tolerate, as in a pod.", maxItems=MAX_LABELS)
    ] = ()
    affinity: Annotated[dict[str, Any] | None, says("Their affinity, as in a pod.")] = None
    volumes: Annotated[tuple[dict[str, Any], ...], says("Volumes, as in a pod.", maxItems=MAX_MOUNTS)] = ()
    image_pull_secrets: Annotated[
        tuple[dict[str, Any], ...], says("Secrets for pulling their images, as in a pod.", maxItems=MAX_CONTAINERS)
    ] = ()
    priority_class_name: Annotated[str, says("Their PriorityClass.", maxLength=MAX_NAME)] = ""
    scheduler_name: Annotated[str, says("Their scheduler.", maxLength=MAX_NAME)] = ""
    containers: Annotated[
        tuple[ContainerOverride, ...], says("What is added to their containers.", maxItems=MAX_CONTAINERS)
    ] = ()
    init_containers: Annotated[
        tuple[ContainerOverride, ...], says("What is added to their init containers.", maxItems=MAX_CONTAINERS)
    ] = ()


class TrainJobGang(_Value, frozen=True):
    """Whether the job's nodes run all together or not at all, and how long they may wait for that."""

    enabled: Annotated[
        bool | None,
        says(
            "True: no node starts before there is room for all of them. False: never so. Default: as the controller's "
            "flag --gang-scheduling says. Fixed once the job has started."
        ),
    ] = None
    timeout_seconds: TimeoutSeconds = None
    on_timeout: OnTimeout = ""
    priority: Priority = None


class MetricsSource(_Value, frozen=True):
    """What is read in the log of node 0."""

    names: Annotated[
        tuple[str, ...],
        says(
            "Names whose last value, written as name=value, is kept in the status and shown at /metrics. Without any, "
            "the log is not read.",
            maxItems=MAX_METRICS,
        ),
    ] = ()


class TrainJobSpec(_Value, frozen=True):
    """What the user asks for."""

    num_nodes: Annotated[
        int | None,
        says(
            "How many nodes, which are pods, train together. Required unless the runtime gives it.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    trainer: Annotated[Trainer, says("The training program, which runs on every node.")] = Trainer()
    model_config: Annotated[ModelConfig | None, says("The model before and after training.")] = None
    dataset_config: Annotated[DatasetConfig | None, says("What is trained on.")] = None
    runtime_ref: Annotated[
        RuntimeRef | None,
        says(
            "The runtime, from which is taken what the job leaves out; it never changes. Default: torch-distributed "
            "for torchrun, mpi-distributed for mpirun and horovodrun, or else that of the framework."
        ),
    ] = None
    framework: Annotated[
        str,
        says(
            "How the nodes learn of each other, where neither the runtime nor the command (torchrun, mpirun) says it: "
            "torch, tensorflow, jax, xgboost, mpi, plain (not at all), or one that was added. The annotation "
            f"{FRAMEWORK_ANNOTATION} may say it instead. Default: plain.",
            **A_FRAMEWORK,
        ),
    ] = ""
    pod_spec_overrides: Annotated[
        tuple[PodSpecOverride, ...],
        says(
            "What the pods of some steps have otherwise than in the runtime, in order: later ones win. trainer, "
            "modelConfig and datasetConfig win over all.",
            maxItems=MAX_OVERRIDES,
        ),
    ] = ()
    labels: Annotated[dict[str, str], says("Labels of all children.", maxProperties=MAX_LABELS)] = {}
    annotations: Annotated[dict[str, str], says("Annotations of all children.", maxProperties=MAX_LABELS)] = {}
    suspend: Annotated[bool, says("True: no pods run; setting it while the job runs ends them. Default: false.")] = (
        False
    )
    managed_by: Annotated[
        str,
        says(
            "Another controller that runs this job, such as kueue.x-k8s.io/multikueue; this one then leaves it alone. "
            "It never changes. Default: this controller.",
            **A_PREFIXED_NAME,
        ),
    ] = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        says(
            "Seconds after its end at which the TrainJob is deleted with all its children. Default: never.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    active_deadline_seconds: Annotated[
        int | None,
        says(
            "Seconds after its start at which a job that has not ended fails. They are counted anew when a suspended "
            "job is resumed. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    max_restarts: Annotated[
        int | None,
        says(
            "How often all nodes may be started anew after one of them failed with an error that may pass; one more "
            "fails the job. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    gang: Annotated[
        TrainJobGang | None, says("Gang scheduling: all nodes at once, or none. Needs the gang scheduler.")
    ] = None
    metrics: Annotated[
        MetricsSource | None,
        says("What is read in the log of node 0. Default: loss, accuracy, throughput, step and epoch."),
    ] = None


class TrainJobAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """Those that are read."""

    framework: str = msgspec.field(default="", name=FRAMEWORK_ANNOTATION)


class TrainJobMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    annotations: TrainJobAnnotations = TrainJobAnnotations()


class TrainJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: why the object could not be read, naming the field; then spec is empty."""

    metadata: TrainJobMeta
    spec: Annotated[TrainJobSpec, says("What the user asks for.")] = TrainJobSpec()
    status: Annotated[TrainJobStatus, says("What the controller says of the job.")] = TrainJobStatus()
    invalid: str = msgspec.field(name="_invalid", default="")
