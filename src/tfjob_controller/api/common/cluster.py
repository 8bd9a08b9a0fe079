"""Nodes, quotas, and pods as a scheduler sees them: what decides whether and where a pod can run, and what it requests.

`ScheduledPod` and `core.Pod` decode the same object: this one has the fields for the capacity of nodes, the other one
the fields for the status of jobs. All values are immutable; unknown fields are dropped on decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

# The annotation of a namespace with its weight in the fair order of the queue.
QUEUE_WEIGHT_ANNOTATION = "scheduling.kubeflow.org/queue-weight"
# Phases of a pod that uses no capacity any more.
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
ALWAYS = "Always"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here."""


class Taint(_Value, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Value, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(_Value, frozen=True):
    type: str = ""
    status: str = ""


class NodeStatus(_Value, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()


class Node(_Value, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(_Value, frozen=True):
    """Quantities by resource name: the requests of a container or pod, or what the kubelet has allocated to it."""

    requests: dict[str, str] = {}


class ScheduledContainer(_Value, frozen=True):
    """`restart_policy` is Always for a sidecar, which is an init container."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class NodeAffinity(_Value, frozen=True):
    required: dict[str, Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(_Value, frozen=True):
    node_affinity: NodeAffinity | None = None


class SchedulingGate(_Value, frozen=True):
    name: str = ""


class ScheduledPodSpec(_Value, frozen=True):
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduler_name: str = ""
    priority: int = 0
    containers: tuple[ScheduledContainer, ...] = ()
    init_containers: tuple[ScheduledContainer, ...] = ()
    resources: Resources | None = None
    overhead: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[dict[str, Any], ...] = ()


class ResizedContainer(_Value, frozen=True):
    """The resources that a kubelet has allocated; they differ from the requests while a pod is resized in place."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: dict[str, str] = {}


class PodCondition(_Value, frozen=True):
    type: str = ""
    reason: str = ""


class ScheduledPodStatus(_Value, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ResizedContainer, ...] = ()
    init_container_statuses: tuple[ResizedContainer, ...] = ()
    resources: Resources | None = None
    allocated_resources: dict[str, str] = {}


class ScheduledPod(_Value, frozen=True):
    """A pod as the scheduler sees it."""

    metadata: ObjectMeta
    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: ScheduledPodStatus = ScheduledPodStatus()


class ScopeRequirement(_Value, frozen=True):
    """One condition on the pods that a quota counts."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(_Value, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(_Value, frozen=True):
    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(_Value, frozen=True):
    """`hard` is what the API server enforces; empty until it has seen the quota."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(_Value, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class NamespaceAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotations that the gang scheduler reads."""

    queue_weight: str = msgspec.field(default="", name=QUEUE_WEIGHT_ANNOTATION)


class NamespaceMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    annotations: NamespaceAnnotations = NamespaceAnnotations()


class Namespace(_Value, frozen=True):
    metadata: NamespaceMeta


class PriorityClass(_Value, frozen=True):
    """The priority of pods that name it. `preemption_policy` is Never, or PreemptLowerPriority (also if empty)."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


decode_namespace = decoder_for(Namespace)
decode_node = decoder_for(Node)
decode_priority_class = decoder_for(PriorityClass)
decode_resource_quota = decoder_for(ResourceQuota)
decode_scheduled_pod = decoder_for(ScheduledPod)
