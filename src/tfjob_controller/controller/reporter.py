"""Reports what a sync did: events, log lines, metrics, and the decision when a status is worth a write.

Theory of operation. The number of ready replicas changes often, and no decision depends on it. A status that differs
from the written one only in such counts is delayed, and is written with the next significant change if that comes
first. Each further write of counts alone is delayed twice as long, up to a limit: replicas that become ready one by
one over minutes cost a few writes instead of one each. A significant change resets the delay. Meanwhile decisions read
the pending status as if it were written, so that a count is not lost with the child that it was read from.

Threads: a `StatusDebounce` belongs to one job and is used by one thread at a time; a `Reporter` by any.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

import structlog

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.controller.writer import WriteResult
from tfjob_controller.kube.events.correlator import ObjectReference
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.trainer import conditions, reasons
from tfjob_controller.trainer.state import observed
from tfjob_controller.trainer.state.observed import PlainTrainingJob, TrainingJob
from tfjob_controller.trainer.status.summary import NORMAL, WARNING, StatusEvent
from tfjob_controller.trainer.status.update import StatusResult, is_minor
from tfjob_controller.util.timestamps import parse_time

log = structlog.get_logger(__name__)


class JobEventRecorder(Protocol):
    """Takes events and never blocks: `kube.events.recorder.EventRecorder`."""

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None: ...


class Reporter:
    """Emits the events of one kind of job."""

    def __init__(self, resource: Resource, recorder: JobEventRecorder) -> None:
        self._resource = resource
        self._recorder = recorder

    def report_status(self, job: Object, events: Iterable[StatusEvent]) -> None:
        """Reports the events of a written status."""
        reference = self._reference(job)
        for event in events:
            self._recorder.event(reference, event.type, event.reason, event.note)
            log.info("event", type=event.type, reason=event.reason, note=event.note)

    def report_writes(self, job: Object, result: WriteResult) -> None:
        """Reports the children that were created, deleted or refused by the API server."""
        if not (result.created or result.deleted or result.failed_creates):
            return
        reference = self._reference(job)
        counts = {"created": len(result.created), "deleted": len(result.deleted)}
        log.info("children written", **counts, refused=len(result.failed_creates))
        for create in result.created:
            note = f"Created {_display_kind(create.resource)}: {create.name}"
            self._recorder.event(reference, NORMAL, reasons.SUCCESSFUL_CREATE, note, "Create")
        for delete in result.deleted:
            note = f"Deleted {_display_kind(delete.resource)}: {delete.name}"
            self._recorder.event(reference, NORMAL, reasons.SUCCESSFUL_DELETE, note, "Delete")
        for fault in result.failed_creates:
            self._recorder.event(reference, WARNING, reasons.FAILED_CREATE, fault.message, "Create")

    def _reference(self, job: Object) -> ObjectReference:
        meta, resource = job.metadata, self._resource
        return ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


def _display_kind(resource: Resource) -> str:
    """`job`, `service`, `config map`, as in the events of upstream controllers."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in resource.kind).strip()


MAX_DEBOUNCE_SECONDS = 8.0


class StatusDebounce:
    """Delays minor status writes of one job, at first by `delay_seconds`."""

    def __init__(self, delay_seconds: float) -> None:
        self._first_delay_seconds = self._delay_seconds = delay_seconds
        self._status: TrainingStatus | None = None
        # The written status that the pending one is based on. Once another one is written, the pending one is stale.
        self._base: TrainingStatus | None = None
        self._since = 0.0

    def with_pending(self, work: TrainingJob) -> TrainingJob:
        """The job with its pending status, if there is one."""
        if self._status is not None and self._base != work.status:
            self._status = None
        if self._status is None:
            return work
        return PlainTrainingJob(work.metadata, self._status, work.ttl_seconds_after_finished)

    def remaining_seconds(self, work: TrainingJob, result: StatusResult, now: float) -> float:
        """How long the write may still be delayed: 0 for a significant change. `now` is monotonic."""
        if not is_minor(work.status, result):
            return 0.0
        if self._status is None:
            self._since = now
        self._status, self._base = result.status, work.status
        return max(0.0, self._since + self._delay_seconds - now)

    def record_write(self, work: TrainingJob, result: StatusResult) -> None:
        """Adjusts the delay after `result` was written; `work` is the job before that."""
        self._status = None
        doubled = min(MAX_DEBOUNCE_SECONDS, 2 * self._delay_seconds)
        self._delay_seconds = doubled if is_minor(work.status, result) else self._first_delay_seconds

    def clear(self) -> None:
        """Drops the pending status."""
        self._status = None


class JobObserver(Protocol):
    """Counts the transitions of jobs."""

    def job_created(self) -> None: ...

    def job_running(self, seconds_since_creation: float) -> None: ...

    def job_restarted(self, restarts: int) -> None: ...

    def job_resized(self, direction: str, reason: str) -> None: ...

    def job_finished(self, state: str, seconds_since_start: float | None) -> None: ...


def observe_status(observer: JobObserver, job: TrainingJob, new: TrainingStatus, now: datetime) -> None:
    """Reports the transitions from the status of `job` to `new`, which was just written."""
    old = job.status
    if not old.phase:
        observer.job_created()
    if new.restarts > old.restarts:
        observer.job_restarted(new.restarts - old.restarts)
    if old.scaling is not None and new.scaling is not None and new.scaling.workers != old.scaling.workers:
        direction = "down" if new.scaling.workers < old.scaling.workers else "up"
        observer.job_resized(direction, "autoscaler" if new.scaling.reason else "spec")
    if new.phase == observed.PHASE_RUNNING and not _has_run(old):
        observer.job_running(_seconds_between(job.metadata.creation_timestamp, now) or 0.0)
    if observed.is_finished(new) and not observed.is_finished(old):
        ended = parse_time(new.completion_time) if new.completion_time else now
        observer.job_finished(new.state, _seconds_between(new.start_time, ended))


def _has_run(status: TrainingStatus) -> bool:
    return any(condition.type == conditions.RUNNING for condition in status.conditions)


def _seconds_between(begin: str | None, end: datetime) -> float | None:
    return max(0.0, (end - parse_time(begin)).total_seconds()) if begin else None


class SyncObserver(Protocol):
    """Is called for every sync, in the worker's thread.

    `result` is success, requeue_after, requeue, error, terminal (a retry cannot help) or panic (a bug).
    """

    def workers_started(self, controller: str, count: int) -> None: ...

    def sync_started(self, controller: str) -> None: ...

    def sync_finished(self, controller: str, result: str, seconds: float) -> None: ...
