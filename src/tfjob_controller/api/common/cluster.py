"""Nodes, and pods as a scheduler sees them: only what decides where a pod can run and what it takes there.

The pod here is another cut of the same object as `core.Pod`: the one has what a job's status is made of, this one what
a node's room is made of. All values are immutable; unknown fields are dropped on decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)

# Phases of a pod that takes no room any more.
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
    """Of a container, a pod, or what a kubelet has given one of them: quantities by resource name."""

    requests: dict[str, str] = {}


class ScheduledContainer(_Value, frozen=True):
    """`restart_policy` is Always for an init container that is a sidecar."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class NodeAffinity(_Value, frozen=True):
    required: dict[str, Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(_Value, frozen=True):
    node_affinity: NodeAffinity | None = None


class ScheduledPodSpec(_Value, frozen=True):
    node_name: str = ""
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
    """What a kubelet says that it has given: not what was asked for while a pod is resized in place."""

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


decode_node = decoder_for(Node)
decode_scheduled_pod = decoder_for(ScheduledPod)
