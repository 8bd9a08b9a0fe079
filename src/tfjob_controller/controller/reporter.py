"""Tells people what a sync has done: an event on the job and a line in the log for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.controller.writer import WriteResult
from tfjob_controller.kube.events.correlator import ObjectReference
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.trainer import reasons
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit
from tfjob_controller.trainer.status import StatusResult
from tfjob_controller.trainer.substance import is_minor
from tfjob_controller.trainer.work import PlainWork, Work

log = structlog.get_logger(__name__)


class JobEventRecorder(Protocol):
    """Takes events and never blocks; `kube.events.EventRecorder`."""

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None: ...


class Reporter:
    """Of one kind of job. Any thread."""

    def __init__(self, resource: Resource, recorder: JobEventRecorder) -> None:
        self._resource = resource
        self._recorder = recorder

    def report_status(self, job: Object, events: Iterable[Emit]) -> None:
        """A status was written, from which these follow."""
        reference = self._reference(job)
        for event in events:
            self._recorder.event(reference, event.type, event.reason, event.note)
            log.info("event", type=event.type, reason=event.reason, note=event.note)

    def report_writes(self, job: Object, report: WriteResult) -> None:
        """Children were written, or refused; nothing is said if there were none."""
        if not (report.created or report.deleted or report.refused):
            return
        reference = self._reference(job)
        log.info("wrote", created=len(report.created), deleted=len(report.deleted), refused=len(report.refused))
        for create in report.created:
            note = f"Created {_in_words(create.resource)}: {create.name}"
            self._recorder.event(reference, NORMAL, reasons.SUCCESSFUL_CREATE, note, "Create")
        for delete in report.deleted:
            note = f"Deleted {_in_words(delete.resource)}: {delete.name}"
            self._recorder.event(reference, NORMAL, reasons.SUCCESSFUL_DELETE, note, "Delete")
        for fault in report.refused:
            self._recorder.event(reference, WARNING, reasons.FAILED_CREATE, fault.words, "Create")

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


def _in_words(resource: Resource) -> str:
    """`job`, `service`, `config map`: as upstream's events say it."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in resource.kind).strip()


MAX_DEBOUNCE_SECONDS = 8.0


class StatusDebounce:
    """Of one job. `delay_seconds` is how long figures rest at first."""

    def __init__(self, delay_seconds: float) -> None:
        self._first_delay_seconds = self._delay_seconds = delay_seconds
        self._status: TrainingStatus | None = None
        # The written status that it follows on: once that is another, this one is out of date.
        self._follows: TrainingStatus | None = None
        self._since = 0.0

    def with_pending(self, work: Work) -> Work:
        """The job with the status that rests, if one does."""
        if self._status is not None and self._follows != work.status:
            self._status = None
        if self._status is None:
            return work
        return PlainWork(work.metadata, self._status, work.ttl_seconds_after_finished)

    def remaining_seconds(self, work: Work, result: StatusResult, now: float) -> float:
        """How much longer it can rest (`now` is monotonic): 0 for one of substance, or one that has rested."""
        if not is_minor(work.status, result):
            return 0.0
        if self._status is None:
            self._since = now
        self._status, self._follows = result.status, work.status
        return max(0.0, self._since + self._delay_seconds - now)

    def record_write(self, work: Work, result: StatusResult) -> None:
        """`result` was; `work` is the job as it was before."""
        self._status = None
        is_figures = is_minor(work.status, result)
        self._delay_seconds = (
            min(MAX_DEBOUNCE_SECONDS, 2 * self._delay_seconds) if is_figures else self._first_delay_seconds
        )

    def clear(self) -> None:
        """There is nothing to write."""
        self._status = None
