"""TrainingRuntime and ClusterTrainingRuntime `trainer.kubeflow.org/v1alpha1` as data.

A runtime contains the template of a JobSet. Each of its replicated jobs becomes a role of a TrainJob, and `dependsOn`
orders them in steps. JobSet need not be installed, because the controller creates the Jobs itself. Fields that the
controller does not support are decoded as well, so that `validation` can reject them by name. Pod templates stay plain
JSON.

Source: kubeflow/trainer pkg/apis/trainer/v1alpha1/trainingruntime_types.go,
kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.api.decode import decoder_of
from tfjob_controller.api.kubeflowtrainer.types import API_GROUP, CLUSTER_RUNTIME, NAMESPACED_RUNTIME
from tfjob_controller.kube.meta import ObjectMeta, Resource

# The label of a replicated job that names the part of a TrainJob that configures it, and the label's values.
ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
DATASET_INITIALIZER, MODEL_INITIALIZER, TRAINER = "dataset-initializer", "model-initializer", "trainer"
# The name of the training container, and of the replicated jobs of an MPI job.
NODE, LAUNCHER = "node", "launcher"
# The containers that a TrainJob configures, by the value of the label.
CONTAINERS = {DATASET_INITIALIZER: DATASET_INITIALIZER, MODEL_INITIALIZER: MODEL_INITIALIZER, TRAINER: NODE}

# Values of `dependsOn[].status`.
READY, COMPLETE = "Ready", "Complete"


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of the parts of a spec. Unknown fields are rejected."""


class EnvInjectionTarget(_Part, frozen=True):
    """The containers of one replicated job that get the variables."""

    job_name: str
    container_names: tuple[str, ...] = ()


class EnvInjection(_Part, frozen=True):
    """The containers that get the framework's variables in addition to the training container."""

    targets: tuple[EnvInjectionTarget, ...] = ()


class TorchPolicy(_Part, frozen=True):
    """The settings of PyTorch. Releases before 2.2 have the last two fields."""

    env_injection: EnvInjection = EnvInjection()
    num_proc_per_node: int | str | None = None
    elastic_policy: dict[str, Any] | None = None


class MpiPolicy(_Part, frozen=True):
    """The settings of MPI."""

    num_proc_per_node: int | None = None
    mpi_implementation: str = ""
    ssh_auth_mount_path: str = msgspec.field(default="", name="sshAuthMountPath")
    run_launcher_as_node: bool = False


class MachineLearningPolicy(_Part, frozen=True):
    """The number of nodes and the framework. Without a framework the job is what upstream calls PlainML."""

    num_nodes: int | None = None
    torch: TorchPolicy | None = None
    mpi: MpiPolicy | None = None
    jax: dict[str, Any] | None = None
    xgboost: dict[str, Any] | None = None
    flux: dict[str, Any] | None = None


class CoschedulingPolicy(_Part, frozen=True):
    """Gang scheduling by the plugin coscheduling."""

    schedule_timeout_seconds: int | None = None


class VolcanoPolicy(_Part, frozen=True):
    """Gang scheduling by Volcano."""

    network_topology: dict[str, Any] | None = None


class PodGroupPolicy(_Part, frozen=True):
    """The scheduler that runs the job as a gang."""

    coscheduling: CoschedulingPolicy | None = None
    volcano: VolcanoPolicy | None = None


class Dependency(_Part, frozen=True):
    """A replicated job that must be ready or complete before another one starts."""

    name: str
    status: str = COMPLETE


class ReplicatedJobTemplate(_Part, frozen=True):
    """The metadata and the spec of a batch/v1 Job."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class ReplicatedJob(_Part, frozen=True):
    """The template of the Job that runs one role."""

    name: str
    group_name: str = ""
    template: ReplicatedJobTemplate = ReplicatedJobTemplate()
    replicas: int = 1
    depends_on: tuple[Dependency, ...] = ()


class JobSetNetwork(_Part, frozen=True):
    """Whether pods have DNS names, and their subdomain."""

    enable_dns_hostnames: bool | None = msgspec.field(default=None, name="enableDNSHostnames")
    subdomain: str = ""
    publish_not_ready_addresses: bool | None = None


class SuccessPolicy(_Part, frozen=True):
    """The replicated jobs whose success completes the job."""

    operator: str = "All"
    target_replicated_jobs: tuple[str, ...] = ()


class FailurePolicy(_Part, frozen=True):
    """When all Jobs are restarted, and how often at most."""

    max_restarts: int = 0
    restart_strategy: str = ""
    rules: tuple[dict[str, Any], ...] = ()


class StartupPolicy(_Part, frozen=True):
    """The order in which JobSet starts the Jobs."""

    startup_policy_order: str = "AnyOrder"


class ClaimTemplate(_Part, frozen=True):
    """The metadata and the spec of a PersistentVolumeClaim. Volume mounts refer to it by its name."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return str(self.metadata.get("name") or "")


class ClaimRetention(_Part, frozen=True):
    """Whether the claims are deleted with the job."""

    when_deleted: str = "Delete"


class VolumeClaimPolicy(_Part, frozen=True):
    """The PersistentVolumeClaims that are created for each job."""

    templates: tuple[ClaimTemplate, ...] = ()
    retention_policy: ClaimRetention = ClaimRetention()


class JobSetSpec(_Part, frozen=True):
    """The spec of a JobSet."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    network: JobSetNetwork = JobSetNetwork()
    success_policy: SuccessPolicy = SuccessPolicy()
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy = StartupPolicy()
    suspend: bool | None = None
    coordinator: dict[str, Any] | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = ()


class JobSetTemplate(_Part, frozen=True):
    """The metadata and the spec of a JobSet."""

    metadata: dict[str, Any] = {}
    spec: JobSetSpec = JobSetSpec()


class KubeflowRuntimeSpec(_Part, frozen=True):
    """The settings that the jobs of a runtime share."""

    ml_policy: MachineLearningPolicy = MachineLearningPolicy()
    pod_group_policy: PodGroupPolicy = PodGroupPolicy()
    template: JobSetTemplate = JobSetTemplate()


class KubeflowRuntime(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A TrainingRuntime, or a ClusterTrainingRuntime, which has no namespace.

    `invalid` is not a field of the API: it is the reason why the object cannot be decoded, and the spec is then empty.
    """

    metadata: ObjectMeta
    spec: KubeflowRuntimeSpec = KubeflowRuntimeSpec()
    invalid: str = msgspec.field(name="_invalid", default="")


_decode = decoder_of(KubeflowRuntime)
KUBEFLOW_TRAINING_RUNTIMES = Resource(API_GROUP, "v1alpha1", "trainingruntimes", NAMESPACED_RUNTIME, _decode)
KUBEFLOW_CLUSTER_TRAINING_RUNTIMES = Resource(
    API_GROUP, "v1alpha1", "clustertrainingruntimes", CLUSTER_RUNTIME, _decode, namespaced=False
)
