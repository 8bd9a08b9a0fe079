"""Writes Gang statuses concurrently, records events, and wakes pods in kube-scheduler.

Each write is a merge patch with the resourceVersion, which the server rejects if the Gang changed; a status that was
not seen is never overwritten. The response goes into the cache at once. Each update has a trace id (kube.trace).

Threads: `write` belongs to one thread and uses a pool of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

import structlog

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import GANGS, NODE_ANNOTATION, Gang, GangStatus, member_of, placed_nodes
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.correlator import ObjectReference
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.trace import new_trace

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


FAILED = "failed"
# Event reasons; the others are those of the condition Scheduled.
REASSIGNED = "Reassigned"
RESIZE_REASONS = {StatusChange.SHRINK_REQUESTED: "ShrinkRequested", StatusChange.GROW_REQUESTED: "GrowRequested"}


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status to write and the change that it records."""

    gang: Gang
    status: GangStatus
    change: StatusChange
    pods_to_wake: tuple[ScheduledPod, ...] = ()
    """Pods that kube-scheduler must retry once the status is written."""

    @property
    def is_admission(self) -> bool:
        """Reports whether the update admits the gang; its reservations are in the view already."""
        return self.change is StatusChange.ADMITTED


# Observes status writes, in the writer's threads. The result is a `StatusChange`, or `FAILED` if the write failed.
ObserveWrite = Callable[[str, Gang], None]


class StatusWriter:
    """Writes status updates, with their events.

    Without `pod_client` no pods are woken: in mode affinity they are pinned to a node when they are created.
    """

    def __init__(
        self,
        gangs: Store[Gang],
        client: ResourceClient[Gang],
        pod_client: ResourceClient[ScheduledPod] | None,
        observe: ObserveWrite,
        recorder: EventRecorder,
        *,
        threads: int,
    ) -> None:
        self._gangs = gangs
        self._client = client
        self._pod_client = pod_client
        self._observe = observe
        self._recorder = recorder
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="gang-writer")

    def stop(self) -> None:
        """Start no further write."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def read(self, namespace: str, name: str) -> None:
        """Read a Gang into the cache without waiting for the watch. Raises ApiError."""
        self._gangs.assume(self._client.get(namespace, name))

    def write(self, updates: Sequence[StatusUpdate]) -> Iterator[tuple[StatusUpdate, ApiError | None]]:
        """Write all updates and return each with its error, in order. Writes nothing after `stop`."""
        try:
            errors = list(self._pool.map(self._write_traced, updates))
        except (RuntimeError, CancelledError):
            # The pool was shut down.
            if not self._stopped.is_set():
                raise
            return iter(())
        return zip(updates, errors, strict=True)

    def _write_traced(self, update: StatusUpdate) -> ApiError | None:
        with new_trace(key_of(update.gang)):
            return self._write(update)

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
        nodes = placed_nodes(written.status) if update.pods_to_wake else {}
        for pod in update.pods_to_wake:
            self.wake_pod(pod, nodes.get(member_of(pod.metadata), ""))
        return None

    def _record_event(self, update: StatusUpdate, gang: Gang) -> None:
        """Record one event for each change of the gang's condition, none for single pods or queue positions."""
        reason = _reason_of(gang.status)
        if update.change is StatusChange.REASSIGNED:
            reason, note = REASSIGNED, "Some pods were assigned other nodes: theirs were lost, full or rejected"
        elif update.change in RESIZE_REASONS:
            reason, note = RESIZE_REASONS[update.change], _resize_note(gang)
        elif reason == _reason_of(update.gang.status):
            return
        else:
            note = gang.status.message
        meta = gang.metadata
        regarding = ObjectReference(
            api_version=GANGS.api_version,
            kind=GANGS.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        type_ = "Warning" if update.change in (StatusChange.REQUEUED, StatusChange.UNSCHEDULABLE) else "Normal"
        self._recorder.event(regarding, type_, reason, note, "Schedule")

    def wake_pod(self, pod: ScheduledPod, node: str) -> None:
        """Make kube-scheduler retry the pod: an update of an unschedulable pod moves it to the active queue."""
        if self._pod_client is None:
            return
        meta = pod.metadata
        note = {"metadata": {"uid": meta.uid, "annotations": {NODE_ANNOTATION: node}}}
        try:
            self._pod_client.patch(meta.namespace, meta.name, note)
        except ApiError as error:
            # kube-scheduler retries by itself within minutes.
            log.info("pod not woken", key=key_of(pod), error=str(error))


def _resize_note(gang: Gang) -> str:
    """`worker: 4 -> 2, room for default/b, waiting 31 s`."""
    counts = {each.name: each.count for each in gang.spec.members}
    targets = gang.status.target_members.items()
    numbers = "; ".join(f"{kind}: {counts.get(kind, 0)} -> {target}" for kind, target in targets)
    return f"{numbers}, {gang.status.target_reason}"


def _reason_of(status: GangStatus) -> str:
    """Returns the reason of the only condition, Scheduled."""
    return status.conditions[0].reason if status.conditions else ""
