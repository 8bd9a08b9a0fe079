"""The gang scheduler's informers on nodes, pods and Gangs, and their handlers, which keep the shared state current.

The pod cache includes finished pods. The capacity of a member that succeeded is released for good, while that of a
failed member is kept for its replacement; a watch that excluded finished pods could not tell the two apart.

Threads: each handler runs in its informer's thread and holds the view's lock for microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tfjob_controller.api.cluster import FINISHED_PHASES, NODES, Node, ScheduledPod, decode_node, decode_scheduled_pod
from tfjob_controller.api.core import PODS
from tfjob_controller.api.gang import GANGS, MEMBER_LABEL, Gang, decode_gang, gang_key_of
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

# The index over pods by the key of their Gang.
BY_GANG = "gang"


def by_gang(pod: ScheduledPod) -> Iterable[str]:
    """Index function."""
    key = gang_key_of(pod.metadata)
    return (key,) if key else ()


class SchedulerCaches:
    """Three informers."""

    def __init__(self, requester: Requester, clock: Clock) -> None:
        self.nodes: Informer[Node] = Informer(requester, NODES, decode_node, clock=clock)
        self.pods: Informer[ScheduledPod] = Informer(
            requester, PODS, decode_scheduled_pod, indexers={BY_GANG: by_gang}, clock=clock
        )
        self.gangs: Informer[Gang] = Informer(requester, GANGS, decode_gang, clock=clock)
        self.informers = InformerGroup([self.nodes, self.pods, self.gangs], clock)


class BindCalls(Protocol):
    """What pods mean to the bind calls' side: `gangscheduler.permit.permit.Permit`."""

    def remove_pod(self, gang: str, member: str, uid: str) -> None: ...
    def note_progress(self, gang: str) -> None: ...


class NodeHandler:
    """Nodes make room, or take it away."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: Node, is_initial: bool) -> None:
        self._set(obj)

    def on_update(self, old: Node, new: Node) -> None:
        self._set(new)

    def on_delete(self, obj: Node, final: bool) -> None:
        with self._state.lock:
            self._state.view.remove_node(obj.metadata.name)
        self._changed(obj.metadata.name)

    def _set(self, node: Node) -> None:
        """Heartbeats change nothing, and wake nobody."""
        view = self._state.view
        with self._state.lock:
            before = view.version, view.nodes_version
            view.set_node(node)
            is_changed = before != (view.version, view.nodes_version)
        if is_changed:
            self._changed(node.metadata.name)

    def _changed(self, name: str) -> None:
        self._state.node_degraded(name)
        self._state.capacity_changed()


class PodHandler:
    """Pods take room; those of gangs also bring their gang nearer to its goal."""

    def __init__(self, state: SharedState, calls: BindCalls) -> None:
        self._state = state
        self._calls = calls

    def on_add(self, obj: ScheduledPod, is_initial: bool) -> None:
        gang = gang_key_of(obj.metadata)
        if gang:
            self._state.observed_requests.note(obj)
            self._calls.note_progress(gang)
        self._set(obj)

    def on_update(self, old: ScheduledPod, new: ScheduledPod) -> None:
        if _is_leaving(new) and not _is_leaving(old):
            self._lost(new)
        self._set(new)

    def on_delete(self, obj: ScheduledPod, final: bool) -> None:
        self._lost(obj)
        with self._state.lock:
            self._state.view.remove_pod(key_of(obj))
        self._tell(obj)

    def _set(self, pod: ScheduledPod) -> None:
        view = self._state.view
        with self._state.lock:
            before = view.version
            view.set_pod(pod)
            is_changed = before != view.version
            is_full = is_changed and any(left < 0 for left in view.free(pod.spec.node_name).values())
        if is_full:
            self._state.node_degraded(pod.spec.node_name)
        self._tell(pod, is_changed)

    def _tell(self, pod: ScheduledPod, is_room_changed: bool = True) -> None:
        gang = gang_key_of(pod.metadata)
        if gang:
            self._state.enqueue(gang)
        if is_room_changed:
            self._state.capacity_changed()

    def _lost(self, pod: ScheduledPod) -> None:
        gang = gang_key_of(pod.metadata)
        if gang:
            self._calls.remove_pod(gang, pod.metadata.labels.get(MEMBER_LABEL, ""), pod.metadata.uid)


class GangHandler:
    """Whatever changed in a Gang, the loop looks at it."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    def on_add(self, obj: Gang, is_initial: bool) -> None:
        self._state.enqueue(key_of(obj))

    def on_update(self, old: Gang, new: Gang) -> None:
        self._state.enqueue(key_of(new))

    def on_delete(self, obj: Gang, final: bool) -> None:
        self._state.enqueue(key_of(obj))


def _is_leaving(pod: ScheduledPod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED_PHASES
