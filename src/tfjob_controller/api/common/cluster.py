"""Nodes, quotas, and pods as a scheduler sees them: what decides whether and where a pod can run, and what it requests.

`ScheduledPod` and `core.Pod` are of the same object: this one has what matters to the capacity of nodes
(`scheduledpods.py` decodes it), the other one what matters to the status of jobs. All values are immutable; what is not
read is dropped on decoding. All labels of nodes are kept: selectors of pods may name any, and only kubelets and
administrators write them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import ObjectMeta, Resource

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


class ResizedContainer(_Value, frozen=True):
    """The resources that a kubelet has allocated; they differ from the requests while a pod is resized in place."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: dict[str, str] = {}


class PodCondition(_Value, frozen=True):
    type: str = ""
    reason: str = ""


class SchedulingGate(_Value, frozen=True):
    name: str = ""


class ScheduledPodSpec(_Value, frozen=True):
    """`required_affinity` is the required node affinity of a pod that the gang scheduler is to pin to a node."""

    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    required_affinity: dict[str, Any] | None = None
    priority_class_name: str = ""


class ScheduledPodStatus(_Value, frozen=True):
    phase: str = ""
    is_unschedulable: bool = False


class ScheduledPod(_Value, frozen=True):
    """What is kept of a pod. `requests` are None if a quantity is invalid; use `podrequests.requests_of`."""

    metadata: ObjectMeta
    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: ScheduledPodStatus = ScheduledPodStatus()
    requests: dict[str, int] | None = {}


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


NODES = Resource("", "v1", "nodes", "Node", decoder_for(Node), namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", kept_decoder(Namespace), namespaced=False)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", kept_decoder(PriorityClass), namespaced=False
)

_decode_quota = kept_decoder(ResourceQuota)
# More than all resources of a cluster, with their limits and requests.
_MAX_AMOUNTS = 256
_MAX_SCOPES = 64
_LARGE_BYTES = 128 * 1024


def decode_resource_quota(raw: bytes | msgspec.Raw) -> ResourceQuota:
    """Decodes a quota. Raises msgspec.DecodeError, also for one with more amounts or scopes than clusters have."""
    data = bytes(raw)
    if len(data) > _LARGE_BYTES:
        raise msgspec.ValidationError(f"quota: at most {_LARGE_BYTES:,} bytes")
    quota = _decode_quota(data)
    selector = quota.spec.scope_selector
    expressions = selector.match_expressions if selector is not None else ()
    amounts = max(len(quota.spec.hard), len(quota.status.hard), len(quota.status.used))
    scopes = len(quota.spec.scopes) + len(expressions) + sum(len(expression.values) for expression in expressions)
    if amounts > _MAX_AMOUNTS or scopes > _MAX_SCOPES:
        raise msgspec.ValidationError(f"quota: at most {_MAX_AMOUNTS} amounts and {_MAX_SCOPES} scopes with values")
    return quota


RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", decode_resource_quota)
