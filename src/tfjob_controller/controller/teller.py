"""Tells people what a sync has done: an event on the job and a line in the log for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

from tfjob_controller.controller.writer import Report
from tfjob_controller.kube.events.correlator import ObjectReference
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.trainer import reasons
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit

log = structlog.get_logger(__name__)


class Recorder(Protocol):
    """Takes events and never blocks; `kube.events.recorder.EventRecorder`."""

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None: ...


class Teller:
    """Of one kind of job. Any thread."""

    def __init__(self, resource: Resource, recorder: Recorder) -> None:
        self._resource = resource
        self._recorder = recorder

    def status(self, job: Object, events: Iterable[Emit]) -> None:
        """A status was written, from which these follow."""
        reference = self._reference(job)
        for event in events:
            self._recorder.event(reference, event.type, event.reason, event.note)
            log.info("event", type=event.type, reason=event.reason, note=event.note)

    def writes(self, job: Object, report: Report) -> None:
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
