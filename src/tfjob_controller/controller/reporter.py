"""Reports what a sync did: events, log lines, metrics, and the decision when a status is worth a write.

Theory of operation. The number of ready replicas changes often, and no decision depends on it. A status that differs
from the written one only in such counts is delayed, and is written with the next significant change if that comes
first. Each further write of counts alone is delayed twice as long, up to a limit: replicas that become ready one by
one over minutes cost a few writes instead of one each. A significant change resets the delay. Meanwhile decisions read
the pending status as if it were written, so that a count is not lost with the child that it was read from.

Threads: a `StatusDebounce` belongs to one job and is used by one thread at a time; a `Reporter` by any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import structlog
from msgspec.structs import replace

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.controller.outcome import Fault
from tfjob_controller.controller.writer import WriteResult
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.actions.model import Create, Delete
from tfjob_controller.jobs.conditions import NORMAL, WARNING, PodEvent, StatusEvent
from tfjob_controller.jobs.status.update import StatusResult, is_minor
from tfjob_controller.jobs.trainingjob import PHASE_RUNNING, TrainingJob, TrainingStatus, is_finished
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.util.timestamps import parse_time

log = structlog.get_logger(__name__)


_WriteT = TypeVar("_WriteT")


class JobEventRecorder(Protocol):
    """Takes events and never blocks: `kube.events.recorder.EventRecorder`."""

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None: ...


class Reporter:
    """Emits the events of one kind of job."""

    def __init__(self, resource: Resource[Object], recorder: JobEventRecorder, *, is_by_kind: bool = False) -> None:
        """`is_by_kind`: an event for each kind of children, whose reason ends with it (`SuccessfulCreatePod`)."""
        self._resource = resource
        self._recorder = recorder
        self._is_by_kind = is_by_kind

    def report_status(self, job: Object, events: Iterable[StatusEvent]) -> None:
        """Reports the events of a written status."""
        reference = self._reference(job)
        for event in events:
            self._recorder.event(reference, event.type, event.reason, event.note)
            log.info("event", type=event.type, reason=event.reason, note=event.note)

    def report_pods(self, job: Object, events: Iterable[PodEvent]) -> None:
        """Reports what has happened in pods: one event for all that have the same cause."""
        by_cause: dict[tuple[str, ...], list[PodEvent]] = {}
        for event in events:
            by_cause.setdefault(event.cause, []).append(event)
        for first, *others in by_cause.values():
            note = _also_for(first.event.note, [other.pod for other in others])
            self.report_status(job, [StatusEvent(first.event.type, first.event.reason, note)])

    def report_writes(self, job: Object, result: WriteResult) -> None:
        """Emits one event for created children, one for deleted ones, and one for each cause of failed creates.

        With `is_by_kind`, these are the events of one kind of children.
        """
        if not (result.created or result.deleted or result.failed_creates):
            return
        reference = self._reference(job)
        counts = {"created": len(result.created), "deleted": len(result.deleted)}
        log.info("children written", **counts, refused=len(result.failed_creates))
        for kind, created in self._parts(result.created, lambda create: create.resource.kind):
            note = f"Created {_list_children(created)}"
            self._recorder.event(reference, NORMAL, f"{reasons.SUCCESSFUL_CREATE}{kind}", note, "Create")
        for kind, deleted in self._parts(result.deleted, lambda delete: delete.resource.kind):
            note = f"Deleted {_list_children(deleted)}"
            self._recorder.event(reference, NORMAL, f"{reasons.SUCCESSFUL_DELETE}{kind}", note, "Delete")
        for kind, failed in self._parts(result.failed_creates, lambda failure: failure[0].resource.kind):
            for note in _failure_notes(failed):
                self._recorder.event(reference, WARNING, f"{reasons.FAILED_CREATE}{kind}", note, "Create")

    def _parts(
        self, writes: Sequence[_WriteT], kind_of: Callable[[_WriteT], str]
    ) -> Iterator[tuple[str, Sequence[_WriteT]]]:
        """Yields the writes of each event, with the end of its reason."""
        if not self._is_by_kind:
            yield from (("", writes),) if writes else ()
            return
        for kind in dict.fromkeys(map(kind_of, writes)):
            yield kind, [write for write in writes if kind_of(write) == kind]

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


# An event's note has at most 1,024 bytes, and a name up to 63.
_MAX_NAMES = 10


def _list_children(children: Sequence[Create | Delete]) -> str:
    """`Job a`, or `2 Jobs and 2 Services: a, b`: a name that several kinds share is listed once."""
    if len(children) == 1:
        return f"{children[0].resource.kind} {children[0].name}"
    counts = Counter(child.resource.kind for child in children)
    (*first, last) = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()]
    kinds = f"{', '.join(first)} and {last}" if first else last
    return f"{kinds}: {_list_names(dict.fromkeys(child.name for child in children))}"


def _list_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MAX_NAMES
    return ", ".join(listed[:_MAX_NAMES]) + (f", and {more} more" if more > 0 else "")


def _failure_notes(failed: Iterable[tuple[Create, Fault]]) -> Iterator[str]:
    """One note for each cause. Messages that differ only in the name of the child have the same cause."""
    causes: dict[str, list[tuple[Create, Fault]]] = {}
    for create, fault in failed:
        causes.setdefault(fault.message.replace(create.name, ""), []).append((create, fault))
    for (_, first), *others in causes.values():
        yield _also_for(first.message, [create.name for create, _ in others])


def _also_for(note: str, others: Sequence[str]) -> str:
    return f"{note} (also for {_list_names(others)})" if others else note


# What is remembered of one job, and the events of one cause of waiting. An object has few events (`kube.events`), and
# those of restarts and ends need some.
_MOST_TOLD, _MOST_OF_CAUSE = 10_000, 3


class ToldEvents:
    """What was told of the pods of one job. Not thread-safe.

    Each event is told once; of one cause of waiting, only the first ones are told while any of these pods is there.
    `is_known`: another process has run the job, and has told what can be seen of its pods at the first call.
    """

    def __init__(self, *, is_known: bool) -> None:
        self._is_known = is_known
        # The last time of each cause, by the UID of the pod.
        self._times: dict[tuple[str, tuple[str, ...]], str] = {}
        # How many calls have returned events of a cause of waiting.
        self._counts: Counter[tuple[str, ...]] = Counter()

    def new(self, events: Iterable[PodEvent], uids: Collection[str]) -> Sequence[PodEvent]:
        """Returns the events that were not returned before. `uids` are those of all pods that the job has."""
        self._times = {key: time for key, time in self._times.items() if key[0] in uids}
        present = {cause for _, cause in self._times}
        self._counts = Counter({cause: count for cause, count in self._counts.items() if cause in present})
        news = []
        for event in events:
            key = (event.uid, event.cause)
            is_full = len(self._times) >= _MOST_TOLD and key not in self._times
            if is_full or self._times.get(key) == event.time:
                continue
            self._times[key] = event.time
            if event.time or self._counts[event.cause] < _MOST_OF_CAUSE:
                news.append(event)
        self._counts.update({event.cause for event in news if not event.time})
        is_known, self._is_known = self._is_known, False
        return [] if is_known else news


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
        return replace(work, status=self._status)

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

    def drop(self) -> bool:
        """Drops the pending status. Returns whether there was one."""
        was_pending, self._status = self._status is not None, None
        return was_pending


class JobObserver(Protocol):
    """Counts the transitions of jobs. `kind` and `namespace` are those of the job."""

    def job_created(self, kind: str, namespace: str) -> None: ...

    def job_running(self, seconds_since_creation: float) -> None: ...

    def job_restarted(self, kind: str, namespace: str, restarts: int) -> None: ...

    def job_preempted(self) -> None: ...

    def job_resized(self, direction: str, reason: str) -> None: ...

    def checkpoints_saved(self, count: int) -> None: ...

    def checkpoints_failed(self, count: int) -> None: ...

    def steps_repeated(self, count: int) -> None: ...

    def job_finished(self, kind: str, namespace: str, state: str, seconds_since_start: float | None) -> None: ...

    def job_deleted(self, kind: str, namespace: str) -> None:
        """Counts a job that the controller has deleted."""


def observe_status(observer: JobObserver, kind: str, job: TrainingJob, new: TrainingStatus, now: datetime) -> None:
    """Reports the transitions from the status of `job`, which is of this kind, to `new`, which was just written."""
    old, namespace = job.status, job.metadata.namespace
    if not old.phase:
        observer.job_created(kind, namespace)
    if new.restarts > old.restarts:
        observer.job_restarted(kind, namespace, new.restarts - old.restarts)
    if _is_preempted(new) and not _is_preempted(old):
        observer.job_preempted()
    if old.scaling is not None and new.scaling is not None and new.scaling.replicas != old.scaling.replicas:
        direction = "down" if new.scaling.replicas < old.scaling.replicas else "up"
        observer.job_resized(direction, "autoscaler" if new.scaling.reason else "spec")
    _observe_checkpoints(observer, old.checkpoint or CheckpointStatus(), new.checkpoint or CheckpointStatus())
    if new.phase == PHASE_RUNNING and not _has_run(old):
        observer.job_running(_seconds_between(job.metadata.creation_timestamp, now) or 0.0)
    if is_finished(new) and not is_finished(old):
        ended = parse_time(new.completion_time) if new.completion_time else now
        observer.job_finished(kind, namespace, new.state, _seconds_between(new.start_time, ended))


def _is_preempted(status: TrainingStatus) -> bool:
    return conditions.has_true(status.conditions, conditions.PREEMPTED)


def _observe_checkpoints(observer: JobObserver, old: CheckpointStatus, new: CheckpointStatus) -> None:
    if new.saved > old.saved:
        observer.checkpoints_saved(new.saved - old.saved)
    if new.failed > old.failed:
        observer.checkpoints_failed(new.failed - old.failed)
    if new.restored is not None and new.restored != old.restored and new.restored.repeated_steps:
        observer.steps_repeated(new.restored.repeated_steps)


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
