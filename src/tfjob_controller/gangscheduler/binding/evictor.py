"""Evicts pods of preempted gangs whose owners did not delete them, by the Eviction API.

Theory of operation. The admission loop submits which pods are to go (status/preempted.py). Each is evicted by its uid,
so that no other pod of its name is, and again after a failure, until its deadline. The API server may refuse an
eviction for a PodDisruptionBudget; then the loop asks other gangs. The Eviction API rather than a deletion: it respects
these budgets, and gives the pod the condition DisruptionTarget, by which controllers know a disruption.

Namespaces take turns. Threads: `evict` from any, the requests in threads of this module.
Source: kubernetes pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from tfjob_controller.api.common.core import PODS
from tfjob_controller.kube.codec import encode
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import namespace_of, split_key
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.kube.workqueue.queue import QueueStatistics, RateLimiter, RateLimitingQueue
from tfjob_controller.kube.workqueue.workers import QueueWorkers
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import most_of_namespace

log = structlog.get_logger(__name__)

RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to go. `grace_seconds` replaces its own grace period; None keeps it.

    `deadline`: in monotonic seconds, until when an eviction that failed is repeated.
    """

    key: str
    uid: str
    grace_seconds: int | None
    deadline: float


class Evictor:
    """Posts Evictions. See the module's docstring."""

    def __init__(self, requester: Requester, clock: Clock, *, threads: int) -> None:
        self._requester = requester
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, Eviction] = {}
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(
            clock,
            RateLimiter(RETRY_BASE_SECONDS, RETRY_CAP_SECONDS),
            name="evictor",
            group_of=namespace_of,
            most_of_group=most_of_namespace(threads),
        )
        self._workers = QueueWorkers("evictor", self._queue, self._process, count=threads, clock=clock)

    @property
    def restarts(self) -> int:
        """How often its threads were restarted."""
        return sum(self._workers.restarts().values())

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()

    def start(self) -> None:
        self._workers.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Evict no further pod and stop the threads."""
        return self._workers.stop(timeout_seconds)

    def evict(self, evictions: Iterable[Eviction]) -> None:
        """Evict the pods soon. One that is being tried keeps its turn."""
        for eviction in evictions:
            with self._lock:
                is_known = eviction.key in self._pending
                self._pending[eviction.key] = eviction
            if not is_known:
                self._queue.add(eviction.key)

    def _process(self, key: str) -> None:
        with self._lock:
            eviction = self._pending.pop(key, None)
        if eviction is None:
            return
        with new_trace(key):
            error = self._post(eviction)
            if error is None or not self._is_repeated(eviction, error):
                self._queue.forget(key)
                return
            with self._lock:
                self._pending.setdefault(key, eviction)
            self._queue.add_rate_limited(key)

    def _is_repeated(self, eviction: Eviction, error: ApiError) -> bool:
        if error.is_not_found or error.is_conflict:
            # It is gone, or another pod has its name.
            return False
        if self._queue.num_requeues(eviction.key) == 0:
            log.warning("pod not evicted", key=eviction.key, uid=eviction.uid, error=str(error))
        return error.is_retryable and self._clock.monotonic() < eviction.deadline

    def _post(self, eviction: Eviction) -> ApiError | None:
        namespace, name = split_key(eviction.key)
        options: dict[str, object] = {"preconditions": {"uid": eviction.uid}}
        if eviction.grace_seconds is not None:
            options["gracePeriodSeconds"] = eviction.grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        try:
            self._requester.request("POST", PODS.path(namespace, name, "eviction"), body=encode(body), retry=False)
        except ApiError as error:
            return error
        return None
