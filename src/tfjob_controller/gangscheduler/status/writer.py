"""Writes Gang statuses concurrently, records events, and wakes pods in kube-scheduler.

Each write is a merge patch with the resourceVersion, which the server rejects if the Gang changed; a status that was
not seen is never overwritten. The response goes into the cache at once. Each update has a trace id (kube.trace).

Theory of operation. Nobody waits for a write, because one may take the API server many seconds. The admission loop
submits updates, which threads of this module write, and later takes their outcomes; whenever a write ends, the writer
calls `wake`. At most one request for a gang is under way, from `submit` or `read` until its outcome is taken. A report,
which has the reason why a gang waits, can be withdrawn as long as its request has not begun; other updates cannot.

Namespaces take turns, and one has at most four fifths of the threads (util/fairness.py), so that statuses which are
slow to write delay only those of their own namespace. Admissions come first, and reports last.

Threads: `submit`, `read`, `withdraw` and `outcomes` belong to one thread; the others to any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import GANGS, NODE_ANNOTATION, Gang, GangStatus
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.meta import key_of, namespace_of, split_key
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.kube.workqueue.queue import QueueStatistics, RateLimiter, RateLimitingQueue
from tfjob_controller.kube.workqueue.workers import QueueWorkers
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import most_of_namespace

log = structlog.get_logger(__name__)


class StatusChange(StrEnum):
    """The change that a status update records; also the `result` of `gang_status_writes_total`."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    UNSCHEDULABLE = "unschedulable"
    BOUND = "bound"
    REASSIGNED = "reassigned"
    RESIZED = "resized"
    RELEASED = "released"
    REQUEUED = "requeued"
    """The gang is back in the queue after an attempt that did not succeed."""
    SHRINK_REQUESTED = "shrink_requested"
    """The gang's owner is requested to reduce the number of members."""
    GROW_REQUESTED = "grow_requested"
    """The gang's owner is requested to increase it."""
    REQUEST_WITHDRAWN = "request_withdrawn"
    """Neither any longer, although the owner did not follow the request."""
    PREEMPTION_REQUESTED = "preemption_requested"
    """The gang's owner is requested to delete all pods, for a gang of higher priority."""
    PREEMPTED = "preempted"
    """They are gone, and the gang is back in the queue."""
    PREEMPTION_ENFORCED = "preemption_enforced"
    """The owner did not delete them in time, and the gang scheduler evicts them."""
    PREEMPTION_NOT_FOLLOWED = "preemption_not_followed"
    """The pods could not be deleted in time, and the gang continues."""


FAILED = "failed"
# Priorities in the queue.
_REPORT, _CHANGE, _ADMISSION = range(3)
# Event reasons; the others are those of the condition Scheduled.
REASSIGNED = "Reassigned"
_PREEMPTION_REASONS = {
    StatusChange.PREEMPTION_REQUESTED: "PreemptionRequested",
    StatusChange.PREEMPTION_ENFORCED: "PreemptionEnforced",
    StatusChange.PREEMPTION_NOT_FOLLOWED: "PreemptionNotFollowed",
}
_WARNINGS = {
    StatusChange.REQUEUED,
    StatusChange.UNSCHEDULABLE,
    StatusChange.PREEMPTED,
    *_PREEMPTION_REASONS,
}
RESIZE_REASONS = {StatusChange.SHRINK_REQUESTED: "ShrinkRequested", StatusChange.GROW_REQUESTED: "GrowRequested"}


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status to write and the change that it records."""

    gang: Gang
    status: GangStatus
    change: StatusChange

    @property
    def is_admission(self) -> bool:
        """Reports whether the update admits the gang; its reservations are in the view already."""
        return self.change is StatusChange.ADMITTED

    @property
    def is_report(self) -> bool:
        """Reports whether the update only has the reason why the gang waits."""
        return self.change in (StatusChange.WAITING, StatusChange.UNSCHEDULABLE)

    @property
    def priority(self) -> int:
        """The priority in the writer's queue."""
        if self.is_admission:
            return _ADMISSION
        return _REPORT if self.is_report else _CHANGE


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How a request for a gang ended."""

    key: str
    update: StatusUpdate | None
    """None if the Gang was read."""
    error: ApiError | None


# Observes status writes, in the writer's threads. The result is a `StatusChange`, or `FAILED` if the write failed.
ObserveWrite = Callable[[str, Gang], None]


class StatusWriter:
    """Writes status updates, with their events. See the module's docstring.

    Without `pod_client` no pods are woken: in mode affinity they are pinned to a node when they are created.
    """

    def __init__(
        self,
        gangs: Store[Gang],
        client: ResourceClient[Gang],
        pod_client: ResourceClient[ScheduledPod] | None,
        observe: ObserveWrite,
        recorder: EventRecorder,
        wake: Callable[[], None],
        clock: Clock,
        *,
        threads: int,
    ) -> None:
        self._gangs = gangs
        self._client = client
        self._pod_client = pod_client
        self._observe = observe
        self._recorder = recorder
        self._wake = wake
        self._lock = threading.Lock()
        # By gang, the update to write, or None if the Gang is to be read; a request that began is not here any more.
        self._pending: dict[str, StatusUpdate | None] = {}
        # Gangs whose request has begun and whose outcome was not taken.
        self._begun: set[str] = set()
        self._outcomes: list[WriteOutcome] = []
        # By gang, pods to wake, with their nodes.
        self._pods_to_wake: dict[str, list[tuple[ScheduledPod, str]]] = {}
        # Failed writes come back through the loop, so nothing is retried here.
        self._queue: RateLimitingQueue[str] = RateLimitingQueue(
            clock,
            RateLimiter(0.0, 0.0),
            name="gang-writer",
            group_of=namespace_of,
            most_of_group=most_of_namespace(threads),
        )
        self._workers = QueueWorkers("gang-writer", self._queue, self._process, count=threads, clock=clock)

    def start(self) -> None:
        self._workers.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Begin no further request, and wait for those that have begun. Returns False if one has not ended in time."""
        return self._workers.stop(timeout_seconds)

    @property
    def restarts(self) -> int:
        """How often its threads were restarted."""
        return sum(self._workers.restarts().values())

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()

    def submit(self, update: StatusUpdate) -> None:
        """Write a status as soon as a thread is free. Nothing of the gang may be under way; ignored after `stop`."""
        self._submit(key_of(update.gang), update)

    def read(self, key: str) -> None:
        """Read a Gang into the cache, without waiting for the watch. Ignored while a request for it is under way."""
        if key not in self.under_way():
            self._submit(key, None)

    def withdraw(self, key: str) -> bool:
        """Withdraw the gang's report if its request has not begun. Returns whether nothing is under way then."""
        with self._lock:
            pending = self._pending.get(key)
            if pending is not None and pending.is_report:
                del self._pending[key]
            return key not in self._pending and key not in self._begun

    def under_way(self) -> set[str]:
        """Returns the gangs with a request that is under way."""
        with self._lock:
            return self._begun | self._pending.keys()

    def outcomes(self) -> Sequence[WriteOutcome]:
        """Take the outcomes of ended requests, in the order of their ends."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
            self._begun.difference_update(outcome.key for outcome in outcomes)
        return outcomes

    def wake_pod(self, pod: ScheduledPod, node: str, gang: str) -> None:
        """Make kube-scheduler retry a pod of the gang: an update of an unschedulable pod moves it to its queue."""
        with self._lock:
            self._pods_to_wake.setdefault(gang, []).append((pod, node))
        self._queue.add(gang, _CHANGE)

    def _submit(self, key: str, update: StatusUpdate | None) -> None:
        with self._lock:
            self._pending[key] = update
        self._queue.add(key, _CHANGE if update is None else update.priority)

    def _process(self, key: str) -> None:
        with self._lock:
            is_pending = key in self._pending
            update = self._pending.pop(key, None)
            pods = self._pods_to_wake.pop(key, [])
            if is_pending:
                self._begun.add(key)
        with new_trace(key):
            if is_pending:
                self._request(key, update)
            for pod, node in pods:
                self._wake_pod(pod, node)

    def _request(self, key: str, update: StatusUpdate | None) -> None:
        # That of an unexpected exception, after which it is unknown whether the status was written.
        error: ApiError | None = ApiError(NO_RESPONSE, "InternalError", "the writer failed", outcome_unknown=True)
        try:
            error = self._read(key) if update is None else self._write(update)
        finally:
            with self._lock:
                self._outcomes.append(WriteOutcome(key, update, error))
            self._wake()

    def _read(self, key: str) -> ApiError | None:
        try:
            self._gangs.assume(self._client.get(*split_key(key)))
        except ApiError as error:
            return error
        return None

    def _write(self, update: StatusUpdate) -> ApiError | None:
        meta = update.gang.metadata
        body = status_patch(update.gang.status, update.status, meta.resource_version)
        try:
            written = self._client.patch(meta.namespace, meta.name, body, subresource="status")
        except ApiError as error:
            self._observe(FAILED, update.gang)
            level = log.debug if error.is_conflict or error.is_not_found else log.warning
            level("gang status not written", key=key_of(update.gang), error=str(error))
            return error
        self._gangs.assume(written)
        self._observe(update.change, written)
        if update.change is not StatusChange.WAITING:
            log.info(
                f"gang {update.change}",
                key=key_of(written),
                attempt=written.status.attempt,
                message=written.status.message,
            )
        self._record_event(update, written)
        return None

    def _record_event(self, update: StatusUpdate, gang: Gang) -> None:
        """Record one event for each change of the gang's condition, none for single pods or queue positions."""
        reason = _reason_of(gang.status)
        if update.change is StatusChange.REASSIGNED:
            reason, note = REASSIGNED, "Some pods were assigned other nodes: theirs were lost, full or rejected"
        elif update.change in RESIZE_REASONS:
            reason, note = RESIZE_REASONS[update.change], _resize_note(gang)
        elif update.change in _PREEMPTION_REASONS:
            reason, note = _PREEMPTION_REASONS[update.change], gang.status.message
        elif reason == _reason_of(update.gang.status):
            return
        else:
            note = gang.status.message
        type_ = "Warning" if update.change in _WARNINGS else "Normal"
        self._recorder.event(reference_to(gang), type_, reason, note, "Schedule")

    def _wake_pod(self, pod: ScheduledPod, node: str) -> None:
        if self._pod_client is None:
            return
        meta = pod.metadata
        note = {"metadata": {"uid": meta.uid, "annotations": {NODE_ANNOTATION: node}}}
        try:
            self._pod_client.patch(meta.namespace, meta.name, note)
        except ApiError as error:
            # kube-scheduler retries by itself within minutes.
            log.info("pod not woken", key=key_of(pod), error=str(error))


def reference_to(gang: Gang) -> ObjectReference:
    """Returns the reference of an event about a Gang."""
    meta = gang.metadata
    return ObjectReference(
        api_version=GANGS.api_version,
        kind=GANGS.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _resize_note(gang: Gang) -> str:
    """Returns a note such as `worker: 4 -> 2, capacity for default/b, waiting 31 s`."""
    counts = {member.name: member.count for member in gang.spec.members}
    targets = gang.status.target_members.items()
    numbers = "; ".join(f"{kind}: {counts.get(kind, 0)} -> {target}" for kind, target in targets)
    return f"{numbers}, {gang.status.target_reason}"


def _reason_of(status: GangStatus) -> str:
    """Returns the reason of the first condition, Scheduled."""
    return status.conditions[0].reason if status.conditions else ""
