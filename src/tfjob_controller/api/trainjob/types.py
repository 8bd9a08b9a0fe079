"""TrainJob `kubeflow.org/v2alpha1` as data: one kind for every framework.

The descriptions are what `kubectl explain` shows and docs/reference/trainjob.md lists. Absent fields stay absent here:
what they then mean is said by `defaults`, what is allowed by `validation`. What the controller writes
stands in `status`. Environment variables, volumes and the like are Kubernetes' own and stay as they are.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.common.schema import (
    A_FRAMEWORK,
    A_NAME,
    A_PREFIXED_NAME,
    INT32_MAX,
    MAX_LABEL_VALUE,
    MAX_NAME,
    describe,
)
from tfjob_controller.api.gang import OnTimeout, Priority, TimeoutSeconds
from tfjob_controller.api.trainjob.status import TrainJobStatus
from tfjob_controller.api.trainjob.storage import MAX_ENV, DatasetConfig, ModelConfig
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

# A job's nodes know each other's addresses from one variable (see tfjob.types.MAX_REPLICAS).
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
        dict[str, int | str], describe("What it asks for, as quantities by resource name.", maxProperties=MAX_LABELS)
    ] = {}
    limits: Annotated[
        dict[str, int | str],
        describe("What it gets at most, as quantities by resource name.", maxProperties=MAX_LABELS),
    ] = {}


class Trainer(_Value, frozen=True):
    """The training program, which runs on every node."""

    num_nodes: Annotated[
        int | None,
        describe(
            "Another name for spec.numNodes; both may stand there if they say the same.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    image: Annotated[str, describe("The image. Required unless the runtime gives one.")] = ""
    command: Annotated[
        tuple[str, ...], describe("The program and its first arguments. Default: the runtime's, or else the image's.")
    ] = ()
    args: Annotated[tuple[str, ...], describe("Its arguments. Default: the runtime's, or else the image's.")] = ()
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe(
            "Environment variables, as in a container; they override the runtime's by name. The variables that the "
            "frameworks set, such as PET_NNODES, RANK or TF_CONFIG, cannot be set here.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    resources_per_node: Annotated[
        ResourcesPerNode, describe("What each node requests and may use. Default: the runtime's.")
    ] = ResourcesPerNode()
    num_proc_per_node: Annotated[
        int | str | None,
        describe(
            "Training processes on each node: a number, cpu (one for each CPU), gpu (one for each GPU), or auto: one "
            "for each GPU; without GPUs one for each CPU with torch, and one with other frameworks. Default: the "
            "runtime's, or else auto."
        ),
    ] = None


class RuntimeRef(_Value, frozen=True):
    """A runtime: what the job leaves out is taken from there."""

    name: Annotated[str, describe("The runtime's name.", minLength=1, **A_NAME)]
    kind: Annotated[
        str,
        describe(
            "TrainingRuntime, in the job's namespace, or ClusterTrainingRuntime.",
            enum=list(RUNTIME_KINDS),
            default=CLUSTER_RUNTIME,
        ),
    ] = CLUSTER_RUNTIME
    api_group: Annotated[str, describe("The runtime's API group.", enum=[API_GROUP], default=API_GROUP)] = API_GROUP


class TargetJob(_Value, frozen=True):
    """One step of the job."""

    name: Annotated[str, describe("The step whose pods are meant.", enum=list(ROLES))]


class ContainerOverride(_Value, frozen=True):
    """What is added to one container."""

    name: Annotated[
        str,
        describe(
            "The container's name: that of the step, or of another one in the runtime's template.",
            minLength=1,
            maxLength=MAX_LABEL_VALUE,
        ),
    ]
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe(
            "Environment variables, as in a container; those of the runtime are overridden by name, those that the job "
            "sets elsewhere win.",
            maxItems=MAX_ENV,
        ),
    ] = ()
    volume_mounts: Annotated[
        tuple[dict[str, Any], ...], describe("Volume mounts, as in a container.", maxItems=MAX_MOUNTS)
    ] = ()


class PodSpecOverride(_Value, frozen=True):
    """What the pods of some steps have otherwise than in the runtime."""

    target_jobs: Annotated[
        tuple[TargetJob, ...], describe("The steps whose pods are meant.", minItems=1, maxItems=len(ROLES))
    ]
    service_account_name: Annotated[str, describe("Their service account.", **A_NAME)] = ""
    node_selector: Annotated[
        dict[str, str], describe("Labels that their nodes must have.", maxProperties=MAX_LABELS)
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], describe("Taints that they tolerate, as in a pod.", maxItems=MAX_LABELS)
    ] = ()
    affinity: Annotated[dict[str, Any] | None, describe("Their affinity, as in a pod.")] = None
    volumes: Annotated[tuple[dict[str, Any], ...], describe("Volumes, as in a pod.", maxItems=MAX_MOUNTS)] = ()
    image_pull_secrets: Annotated[
        tuple[dict[str, Any], ...], describe("Secrets for pulling their images, as in a pod.", maxItems=MAX_CONTAINERS)
    ] = ()
    priority_class_name: Annotated[str, describe("Their PriorityClass.", maxLength=MAX_NAME)] = ""
    scheduler_name: Annotated[str, describe("Their scheduler.", maxLength=MAX_NAME)] = ""
    containers: Annotated[
        tuple[ContainerOverride, ...], describe("What is added to their containers.", maxItems=MAX_CONTAINERS)
    ] = ()
    init_containers: Annotated[
        tuple[ContainerOverride, ...], describe("What is added to their init containers.", maxItems=MAX_CONTAINERS)
    ] = ()


class TrainJobGang(_Value, frozen=True):
    """Whether the job's nodes run all together or not at all, and how long they may wait for that."""

    enabled: Annotated[
        bool | None,
        describe(
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
        describe(
            "Names whose last value, written as name=value, is kept in the status and shown at /metrics. Without any, "
            "the log is not read.",
            maxItems=MAX_METRICS,
        ),
    ] = ()


class TrainJobSpec(_Value, frozen=True):
    """What the user asks for."""

    num_nodes: Annotated[
        int | None,
        describe(
            "How many nodes, which are pods, train together. Required unless the runtime gives it.",
            format="int32",
            minimum=1,
            maximum=MAX_NODES,
        ),
    ] = None
    trainer: Annotated[Trainer, describe("The training program, which runs on every node.")] = Trainer()
    model_config: Annotated[ModelConfig | None, describe("The model before and after training.")] = None
    dataset_config: Annotated[DatasetConfig | None, describe("What is trained on.")] = None
    runtime_ref: Annotated[
        RuntimeRef | None,
        describe(
            "The runtime, from which is taken what the job leaves out; it never changes. Default: torch-distributed "
            "for torchrun, mpi-distributed for mpirun and horovodrun, or else that of the framework."
        ),
    ] = None
    framework: Annotated[
        str,
        describe(
            "How the nodes learn of each other, where neither the runtime nor the command (torchrun, mpirun) says it: "
            "torch, tensorflow, jax, xgboost, mpi, plain (not at all), or one that was added. The annotation "
            f"{FRAMEWORK_ANNOTATION} may say it instead. Default: plain.",
            **A_FRAMEWORK,
        ),
    ] = ""
    pod_spec_overrides: Annotated[
        tuple[PodSpecOverride, ...],
        describe(
            "What the pods of some steps have otherwise than in the runtime, in order: later ones win. trainer, "
            "modelConfig and datasetConfig win over all.",
            maxItems=MAX_OVERRIDES,
        ),
    ] = ()
    labels: Annotated[dict[str, str], describe("Labels of all children.", maxProperties=MAX_LABELS)] = {}
    annotations: Annotated[dict[str, str], describe("Annotations of all children.", maxProperties=MAX_LABELS)] = {}
    suspend: Annotated[
        bool, describe("True: no pods run; setting it while the job runs ends them. Default: false.")
    ] = False
    managed_by: Annotated[
        str,
        describe(
            "Another controller that runs this job, such as kueue.x-k8s.io/multikueue; this one then leaves it alone. "
            "It never changes. Default: this controller.",
            **A_PREFIXED_NAME,
        ),
    ] = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        describe(
            "Seconds after its end at which the TrainJob is deleted with all its children. Default: never.",
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
    max_restarts: Annotated[
        int | None,
        describe(
            "How often all nodes may be started anew after one of them failed with an error that may pass; one more "
            "fails the job. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    gang: Annotated[
        TrainJobGang | None, describe("Gang scheduling: all nodes at once, or none. Needs the gang scheduler.")
    ] = None
    metrics: Annotated[
        MetricsSource | None,
        describe("What is read in the log of node 0. Default: loss, accuracy, throughput, step and epoch."),
    ] = None


class TrainJobAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """Those that are read."""

    framework: str = msgspec.field(default="", name=FRAMEWORK_ANNOTATION)


class TrainJobMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    annotations: TrainJobAnnotations = TrainJobAnnotations()


class TrainJob(_Value, frozen=True):
    """One job. `invalid` is not on the wire: why the object could not be read, naming the field; then spec is empty."""

    metadata: TrainJobMeta
    spec: Annotated[TrainJobSpec, describe("What the user asks for.")] = TrainJobSpec()
    status: Annotated[TrainJobStatus, describe("What the controller says of the job.")] = TrainJobStatus()
    invalid: str = msgspec.field(name="_invalid", default="")
