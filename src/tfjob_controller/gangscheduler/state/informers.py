"""The gang scheduler's informers on nodes, pods, quotas and Gangs; their handlers keep the shared state current.

The pod cache includes finished pods. The capacity of a member that succeeded is released for good, while that of a
failed member is kept for its replacement; a watch that excluded finished pods could not tell the two apart.

Threads: each handler runs in its informer's thread and holds the view's lock for microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import structlog

from tfjob_controller.api.common.cluster import (
    FINISHED_PHASES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    QUEUE_WEIGHT_ANNOTATION,
    RESOURCE_QUOTAS,
    Namespace,
    Node,
    PriorityClass,
    ResourceQuota,
    ScheduledPod,
)
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS, Gang, gang_key_of, member_of
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.scheduling.fairshare import DEFAULT_WEIGHT, MAX_WEIGHT, MIN_WEIGHT, weight_in
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Names of the pod index by Gang key, and of the quota index.
BY_GANG = "gang"
BY_NAMESPACE = "namespace"


def by_gang(pod: ScheduledPod) -> Iterable[str]:
    """Index function: the key of the pod's Gang, if any."""
    key = gang_key_of(pod.metadata)
    return (key,) if key else ()


def by_namespace(quota: ResourceQuota) -> Iterable[str]:
    """Index function: the namespace."""
    return (quota.metadata.namespace,)


class SchedulerCaches:
    """The informers on nodes, pods, quotas and Gangs.

    There are two more, which only some flags need: `with_priorities` on PriorityClasses, `with_weights` on Namespaces.
    """

    def __init__(
        self, requester: Requester, clock: Clock, *, with_priorities: bool = False, with_weights: bool = False
    ) -> None:
        self.nodes = Informer(requester, NODES, clock=clock)
        self.pods = Informer(requester, SCHEDULED_PODS, indexers={BY_GANG: by_gang}, clock=clock)
        self.quotas = Informer(requester, RESOURCE_QUOTAS, indexers={BY_NAMESPACE: by_namespace}, clock=clock)
        self.gangs = Informer(requester, GANGS, clock=clock)
        self.priority_classes = Informer(requester, PRIORITY_CLASSES, clock=clock) if with_priorities else None
        self.namespaces = Informer(requester, NAMESPACES, clock=clock) if with_weights else None
        more = [informer for informer in (self.priority_classes, self.namespaces) if informer is not None]
        self.informers = InformerGroup([self.nodes, self.pods, self.quotas, self.gangs, *more], clock)

    def weight_of(self, namespace: str) -> float:
        """Returns the weight of a namespace in the fair order; an invalid one counts as none."""
        record = self.namespaces.store.get(namespace) if self.namespaces is not None else None
        text = record.metadata.annotations.queue_weight if record is not None else ""
        return weight_in(text) or DEFAULT_WEIGHT

    def list_priority_classes(self) -> Sequence[PriorityClass]:
        """Returns the PriorityClasses of the cluster; none without their informer."""
        return () if self.priority_classes is None else self.priority_classes.store.list()

    def quotas_of(self, namespace: str) -> Sequence[ResourceQuota]:
        """Returns the ResourceQuotas of a namespace."""
        return self.quotas.store.by_index(BY_NAMESPACE, namespace)


class PodListener(Protocol):
    """Learns of created and ended member pods; implemented by `permit.Permit`, which is a layer above."""

    def remove_pod(self, gang: str, member: str, uid: str) -> None: ...
    def note_progress(self, gang: str, attempt: int, member: str) -> None: ...


class NodeHandler:
    """Keeps the view's nodes current."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: Node, is_initial: bool) -> None:
        self._set(obj)

    def on_update(self, old: Node, new: Node) -> None:
        self._set(new)

    def on_delete(self, obj: Node, final: bool) -> None:
        with self._state.lock:
            self._state.view.remove_node(obj.metadata.name)
        self._notify(obj.metadata.name)

    def _set(self, node: Node) -> None:
        """Update the view. Heartbeats do not change it and do not wake the loop."""
        view = self._state.view
        with self._state.lock:
            before = view.version, view.nodes_version
            view.set_node(node)
            is_changed = before != (view.version, view.nodes_version)
        if is_changed:
            self._notify(node.metadata.name)

    def _notify(self, name: str) -> None:
        self._state.node_degraded(name)
        self._state.capacity_changed()


class PodHandler:
    """Keeps the view's pods current, and reports member pods to Permit and the loop."""

    def __init__(self, state: SharedState, permit: PodListener) -> None:
        self._state = state
        self._permit = permit

    def on_add(self, obj: ScheduledPod, is_initial: bool) -> None:
        gang = gang_key_of(obj.metadata)
        if gang:
            self._state.observed_requests.add_pod(obj)
            self._state.note_created(obj, self._permit.note_progress)
        self._set(obj)

    def on_update(self, old: ScheduledPod, new: ScheduledPod) -> None:
        if _is_ending(new) and not _is_ending(old):
            self._remove_from_permit(new)
        self._set(new, old)

    def on_delete(self, obj: ScheduledPod, final: bool) -> None:
        self._remove_from_permit(obj)
        with self._state.lock:
            self._state.view.remove_pod(key_of(obj))
            self._state.pod_usage.remove_pod(key_of(obj))
            self._state.gang_pods.remove(obj)
        self._enqueue(obj)

    def _set(self, pod: ScheduledPod, old: ScheduledPod | None = None) -> None:
        view = self._state.view
        with self._state.lock:
            before = view.version
            view.set_pod(pod)
            self._state.pod_usage.set_pod(pod)
            # Labels may have changed.
            if old is not None:
                self._state.gang_pods.remove(old)
            self._state.gang_pods.set(pod)
            is_changed = before != view.version
            is_overcommitted = is_changed and any(left < 0 for left in view.free(pod.spec.node_name).values())
        if is_overcommitted:
            self._state.node_degraded(pod.spec.node_name)
        is_new = self._state.admitted_classes.add(pod.metadata.namespace, pod.spec.priority_class_name)
        self._enqueue(pod, is_changed or is_new)

    def _enqueue(self, pod: ScheduledPod, is_any_affected: bool = True) -> None:
        gang = gang_key_of(pod.metadata)
        if gang:
            self._state.enqueue(gang)
        if is_any_affected:
            self._state.capacity_changed()

    def _remove_from_permit(self, pod: ScheduledPod) -> None:
        gang = gang_key_of(pod.metadata)
        if gang:
            self._permit.remove_pod(gang, member_of(pod.metadata), pod.metadata.uid)


class QuotaHandler:
    """Wakes the loop when a quota may leave more."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: ResourceQuota, is_initial: bool) -> None:
        self._state.capacity_changed()

    def on_update(self, old: ResourceQuota, new: ResourceQuota) -> None:
        if (old.spec, old.status) != (new.spec, new.status):
            self._state.capacity_changed()

    def on_delete(self, obj: ResourceQuota, final: bool) -> None:
        self._state.capacity_changed()


class NamespaceHandler:
    """Wakes the loop when a weight changes, and logs an invalid one."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: Namespace, is_initial: bool) -> None:
        self._changed(obj)

    def on_update(self, old: Namespace, new: Namespace) -> None:
        if old.metadata.annotations != new.metadata.annotations:
            self._changed(new)

    def on_delete(self, obj: Namespace, final: bool) -> None:
        pass

    def _changed(self, namespace: Namespace) -> None:
        text = namespace.metadata.annotations.queue_weight
        if text and weight_in(text) is None:
            log.warning(
                f"annotation {QUEUE_WEIGHT_ANNOTATION}: the weight is 1, "
                f"because this is not a decimal number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}",
                namespace=namespace.metadata.name,
                value=text[:32],
            )
        self._state.wake()


class PriorityClassHandler:
    """Wakes the loop when other gangs may preempt."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: PriorityClass, is_initial: bool) -> None:
        self._state.wake()

    def on_update(self, old: PriorityClass, new: PriorityClass) -> None:
        self._state.wake()

    def on_delete(self, obj: PriorityClass, final: bool) -> None:
        self._state.wake()


class GangHandler:
    """Marks every changed Gang for the loop."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: Gang, is_initial: bool) -> None:
        self._state.enqueue(key_of(obj))

    def on_update(self, old: Gang, new: Gang) -> None:
        self._state.enqueue(key_of(new))

    def on_delete(self, obj: Gang, final: bool) -> None:
        self._state.enqueue(key_of(obj))


def _is_ending(pod: ScheduledPod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED_PHASES
