"""The Kubeflow TrainJob as data: TrainJob `trainer.kubeflow.org/v1alpha1`, as Kubeflow Trainer defines it.

A cluster has the CRDs of one release of Kubeflow Trainer. The types have the fields of release 2.3 and those that only
earlier releases have (2.0: `podSpecOverrides`, 2.1: `podTemplateOverrides`). Any other field is rejected when the
object is decoded, because ignoring it might change what the job does. Parts of pods stay plain JSON; `validation` has
the rules.

Source: kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.api.common.record import RecordedMeta
from tfjob_controller.api.common.trainerstatus import TrainerStatus
from tfjob_controller.api.decode import decoder_of
from tfjob_controller.kube.meta import Resource

API_GROUP = "trainer.kubeflow.org"

# Kinds of runtimes, in the fields of a reference and in the API.
NAMESPACED_RUNTIME, CLUSTER_RUNTIME = "TrainingRuntime", "ClusterTrainingRuntime"
# The value of `managedBy` of jobs that the controller of this API group runs; no value means the same.
MANAGED_HERE = "trainer.kubeflow.org/trainjob-controller"

# Limits that Kubeflow Trainer's CRDs do not set.
MAX_NODES = 5000
MAX_PATCHES = 16

# The types of the conditions.
SUSPENDED, COMPLETE, FAILED = "Suspended", "Complete", "Failed"


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of the parts of a spec. Unknown fields are rejected."""


class KubeflowRuntimeRef(_Part, frozen=True):
    """A reference to a runtime; a TrainingRuntime is in the job's namespace."""

    name: str
    api_group: str = API_GROUP
    kind: str = CLUSTER_RUNTIME


class KubeflowSecretRef(_Part, frozen=True):
    """A reference to a Secret in the job's namespace."""

    name: str = ""


class AssetInitializer(_Part, frozen=True):
    """The dataset or the model that an initializer fetches."""

    storage_uri: str | None = None
    env: tuple[dict[str, Any], ...] = ()
    secret_ref: KubeflowSecretRef | None = None


class Initializers(_Part, frozen=True):
    """The dataset and the model that the initializers of a job fetch."""

    dataset: AssetInitializer | None = None
    model: AssetInitializer | None = None


class ResourceRequirements(_Part, frozen=True):
    """The resources of the training container."""

    requests: dict[str, int | str] = {}
    limits: dict[str, int | str] = {}
    claims: tuple[dict[str, Any], ...] = ()


class KubeflowTrainer(_Part, frozen=True):
    """Overrides the training container of the runtime. None keeps the value of the runtime."""

    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[dict[str, Any], ...] = ()
    num_nodes: int | None = None
    resources_per_node: ResourceRequirements | None = None
    # A number since release 2.2; earlier releases also had auto, cpu and gpu.
    num_proc_per_node: int | str | None = None


class RuntimePatch(_Part, frozen=True):
    """A patch of the runtime by one field manager; `training_runtime_spec` has the structure of a runtime's spec."""

    manager: str
    time: str | None = None
    training_runtime_spec: dict[str, Any] = {}


class TargetReplicatedJob(_Part, frozen=True):
    """A reference to a replicated job of the runtime."""

    name: str


class PodTemplateOverride(_Part, frozen=True):
    """Overrides the pods of some replicated jobs (release 2.1)."""

    target_jobs: tuple[TargetReplicatedJob, ...] = ()
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class KubeflowTrainJobSpec(_Part, frozen=True):
    """The desired state of a job."""

    runtime_ref: KubeflowRuntimeRef = KubeflowRuntimeRef("")
    initializer: Initializers = Initializers()
    trainer: KubeflowTrainer = KubeflowTrainer()
    runtime_patches: tuple[RuntimePatch, ...] = ()
    suspend: bool = False
    active_deadline_seconds: int = 0
    managed_by: str = MANAGED_HERE
    # Only in releases before 2.2. An entry of podSpecOverrides has `targetJobs` and the fields of a pod spec.
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_template_overrides: tuple[PodTemplateOverride, ...] = ()
    pod_spec_overrides: tuple[dict[str, Any], ...] = ()


class _Status(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the parts of a status; unknown fields are dropped on decoding."""


class KubeflowCondition(_Status, frozen=True, omit_defaults=False):
    """A condition with the fields that Kubeflow Trainer writes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ReplicatedJobStatus(_Status, frozen=True, omit_defaults=False):
    """The number of child Jobs of one replicated job in each state: 0 or 1, because there is one child Job."""

    name: str
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0


class KubeflowTrainJobStatus(_Status, frozen=True):
    """The observed state of a job. `trainer_status` is the last report of the training program."""

    conditions: tuple[KubeflowCondition, ...] = ()
    jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    trainer_status: TrainerStatus | None = None


class KubeflowTrainJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A TrainJob.

    `invalid` is not a field of the API: it is the reason why the object cannot be decoded, and the spec is then empty.
    """

    metadata: RecordedMeta
    spec: KubeflowTrainJobSpec = KubeflowTrainJobSpec()
    status: KubeflowTrainJobStatus = KubeflowTrainJobStatus()
    invalid: str = msgspec.field(name="_invalid", default="")


KUBEFLOW_TRAINJOBS = Resource(API_GROUP, "v1alpha1", "trainjobs", "TrainJob", decoder_of(KubeflowTrainJob))
