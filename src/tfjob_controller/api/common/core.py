"""Objects of Kubernetes and of other schedulers that the controller reads, mainly the children of jobs.

Each type has only the fields that the controller reads: JSON decoding skips the others, which saves memory in the
caches. Children are written as plain JSON (`jobs.actions.children`), not from these types. All values are immutable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

# A training program sets this annotation of its pod to the number of completed steps.
STEPS_ANNOTATION = "kubeflow.org/steps"
# Phases of pods.
POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED = "Pending", "Running", "Succeeded", "Failed"
# On a pod that a job owns without a Job between: how often its replica was restarted before it was created.
RESTARTS_ANNOTATION = "kubeflow.org/restarts"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class Condition(_Value, frozen=True):
    """A condition of a Pod or Job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Terminated(_Value, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class Waiting(_Value, frozen=True):
    reason: str = ""
    message: str = ""


class Running(_Value, frozen=True):
    started_at: str | None = None


class ContainerState(_Value, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Value, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    # Of a running container: it has no startup probe, or has passed it.
    started: bool = False


class InitContainer(_Value, frozen=True):
    name: str = ""
    restart_policy: str = ""


class PodSpec(_Value, frozen=True):
    node_name: str = ""
    # The default of the API server.
    restart_policy: str = "Always"
    init_containers: tuple[InitContainer, ...] = ()
    active_deadline_seconds: int | None = None


class PodStatus(_Value, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotations that the controller reads."""

    steps: str = msgspec.field(default="", name=STEPS_ANNOTATION)
    restarts: str = msgspec.field(default="", name=RESTARTS_ANNOTATION)


class PodMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    # The time from the deletion request to `deletion_timestamp`.
    deletion_grace_period_seconds: int = 0
    annotations: PodAnnotations = PodAnnotations()


class Pod(_Value, frozen=True):
    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobSpec(_Value, frozen=True):
    suspend: bool = False
    # The default of the API server.
    parallelism: int = 1


class JobStatus(_Value, frozen=True):
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    # Only for an Indexed Job. The format is `0-2,5`.
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[Condition, ...] = ()


class BatchJob(_Value, frozen=True):
    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Scale(_Value, frozen=True):
    """The response of a scale subresource (autoscaling/v1). Its spec and status are not read."""

    metadata: ObjectMeta


class Service(_Value, frozen=True):
    metadata: ObjectMeta


class ConfigMap(_Value, frozen=True):
    metadata: ObjectMeta


class OwnedObject(_Value, frozen=True):
    """An object that a job owns beside its pods and Services: the digest of its content, if that is ever changed."""

    metadata: ObjectMeta
    digest: str = ""


class Secret(_Value, frozen=True):
    """A Secret without its data."""

    metadata: ObjectMeta


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The bounds, and the digest of target and metrics (`jobs.actions.children.autoscaler_digest`)."""

    min_replicas: int = 1
    max_replicas: int = 0
    digest: str = ""


class HorizontalPodAutoscaler(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A HorizontalPodAutoscaler without its status, which changes often."""

    metadata: ObjectMeta
    spec: AutoscalerSpec = AutoscalerSpec()


class PersistentVolumeClaim(_Value, frozen=True):
    metadata: ObjectMeta


class PodGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that represents a gang to another scheduler.

    It is a PodGroup of Volcano, of the coscheduling plugin or of Kubernetes, or a Workload of Kueue. `spec` and
    `status` have what `jobs.plan.podgroupbackends` reads, as on the wire; they are never mutated.
    """

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


PODS = Resource("", "v1", "pods", "Pod", decoder_for(Pod))
SERVICES = Resource("", "v1", "services", "Service", decoder_for(Service))
SECRETS = Resource("", "v1", "secrets", "Secret", decoder_for(Secret))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", decoder_for(ConfigMap))
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", decoder_for(OwnedObject))
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", decoder_for(OwnedObject))
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", decoder_for(OwnedObject))
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", decoder_for(PersistentVolumeClaim)
)
JOBS = Resource("batch", "v1", "jobs", "Job", decoder_for(BatchJob))
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", decoder_for(HorizontalPodAutoscaler)
)
decode_scale = decoder_for(Scale)
