"""Pins gated pods of admitted gangs to their nodes and removes their scheduling gate, in mode affinity.

Theory of operation. In mode affinity no extender tells kube-scheduler the node of a member: each pod requires it by
node affinity. A Job of one member has it in its template, but the pods of an Indexed Job share one template, which
cannot name a node for each. They are created with the scheduling gate `scheduling.kubeflow.org/placement`, so that
kube-scheduler does not consider them. One patch adds the node to the pod's required node affinity and removes the gate,
which Kubernetes allows while a pod is gated.

Keys of pods are queued when a gated pod or the placement of its gang changes, and after a failed patch. A worker reads
pod and Gang from the caches again, so a pod is patched only if its gang is admitted, in the pod's attempt, with a node
for its member. The patch has the pod's uid and resourceVersion: a pod that has changed since is patched again. All of
it is derived from pods and Gangs, so nothing is lost in a restart.

Threads: the handlers run in the informers' threads, patches in threads of this module.
Source: kubernetes pkg/apis/core/validation (ValidatePodUpdate), Kueue (topology ungater).
"""

from __future__ import annotations

from typing import Any

import structlog

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    PLACEMENT_GATE,
    REQUIRED_NODE_AFFINITY,
    Gang,
    gang_key_of,
    member_of,
    must_leave,
    required_on_node,
)
from tfjob_controller.gangscheduler.state.gangpods import PlacedNodes
from tfjob_controller.gangscheduler.state.informers import BY_GANG
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import key_of, namespace_of
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.kube.workqueue.queue import QueueStatistics, RateLimiter, RateLimitingQueue
from tfjob_controller.kube.workqueue.workers import QueueWorkers
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = 0.2, 30.0


class Ungater:
    """Patches gated pods. `on_pod` and `on_gang` report what has changed."""

    def __init__(
        self,
        gangs: Store[Gang],
        pods: Store[ScheduledPod],
        client: ResourceClient[ScheduledPod],
        clock: Clock,
        *,
        threads: int,
    ) -> None:
        self._gangs = gangs
        self._pods = pods
        self._client = client
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(
            clock,
            RateLimiter(RETRY_BASE_SECONDS, RETRY_CAP_SECONDS),
            name="ungater",
            group_of=namespace_of,
        )
        # The pods of a gang are queued one after the other.
        self._placed = PlacedNodes()
        self._workers = QueueWorkers("ungater", self._queue, self._process, count=threads, clock=clock)

    @property
    def restarts(self) -> int:
        """How often its threads were restarted."""
        return sum(self._workers.restarts().values())

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()

    def start(self) -> None:
        self._workers.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Start no further patch and stop the threads."""
        return self._workers.stop(timeout_seconds)

    def on_pod(self, pod: ScheduledPod) -> None:
        """Queue a pod that was created or changed, if it is a gated member of a gang."""
        if _is_gated(pod) and gang_key_of(pod.metadata):
            self._queue.add(key_of(pod))

    def on_gang(self, gang: Gang) -> None:
        """Queue the gated pods of a gang that may have been admitted or placed."""
        if gang.status.phase in (ADMITTED, BOUND):
            for pod in self._pods.by_index(BY_GANG, key_of(gang)):
                self.on_pod(pod)

    def ungate(self, key: str) -> ApiError | None:
        """Patch the pod, if it is gated and has a node, and return the error of a patch to be repeated."""
        pod = self._pods.get(key)
        node = self._node_of(pod) if pod is not None and _is_gated(pod) else ""
        if pod is None or not node:
            return None
        try:
            self._pods.assume(self._client.patch(pod.metadata.namespace, pod.metadata.name, _patch(pod, node)))
        except ApiError as error:
            return None if error.is_not_found else error
        return None

    def _node_of(self, pod: ScheduledPod) -> str:
        """Returns the node of the pod's member; empty if it is no member of the present attempt of an admitted gang."""
        gang = self._gangs.get(gang_key_of(pod.metadata))
        if gang is None or gang.status.phase not in (ADMITTED, BOUND) or not lifecycle.is_wanted(gang):
            return ""
        if must_leave(gang):
            return ""
        if pod.metadata.labels.get(ATTEMPT_LABEL) != str(gang.status.attempt) or pod.metadata.deletion_timestamp:
            return ""
        return self._placed.of(gang.status).get(member_of(pod.metadata), "")

    def _process(self, key: str) -> None:
        with new_trace(key):
            error = self.ungate(key)
            if error is None:
                self._queue.forget(key)
                return
            # A conflict only means that the pod has changed. Of repeated failures the first is logged as a warning.
            is_new = self._queue.num_requeues(key) == 0 and not error.is_conflict
            (log.warning if is_new else log.debug)("pod not ungated, retrying", key=key, error=str(error))
            self._queue.add_rate_limited(key)


class GatedPodHandler:
    """Reports created and changed pods to the ungater."""

    def __init__(self, ungater: Ungater) -> None:
        self._ungater = ungater

    def on_add(self, obj: ScheduledPod, is_initial: bool) -> None:
        self._ungater.on_pod(obj)

    def on_update(self, old: ScheduledPod, new: ScheduledPod) -> None:
        self._ungater.on_pod(new)

    def on_delete(self, obj: ScheduledPod, final: bool) -> None:
        """A deleted pod needs nothing."""


class PlacedGangHandler:
    """Reports changed Gangs to the ungater."""

    def __init__(self, ungater: Ungater) -> None:
        self._ungater = ungater

    def on_add(self, obj: Gang, is_initial: bool) -> None:
        self._ungater.on_gang(obj)

    def on_update(self, old: Gang, new: Gang) -> None:
        self._ungater.on_gang(new)

    def on_delete(self, obj: Gang, final: bool) -> None:
        """The pods of a deleted Gang stay gated."""


def _is_gated(pod: ScheduledPod) -> bool:
    return any(gate.name == PLACEMENT_GATE for gate in pod.spec.scheduling_gates)


def _patch(pod: ScheduledPod, node: str) -> dict[str, Any]:
    """Returns the merge patch. It keeps gates of others, and the rest of the affinity."""
    required = required_on_node(pod.spec.required_affinity, node)
    gates = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != PLACEMENT_GATE]
    return {
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "spec": {"schedulingGates": gates, "affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: required}}},
    }
