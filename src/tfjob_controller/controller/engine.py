"""The sync: what the cluster holds of a job is compared with what it should hold, and the difference is written.

Theory of operation. `Engine.sync(key)` is level-triggered: it looks at the caches as they are, whatever happened.

    snapshot from caches → plan (pure) → difference (pure) → writes, at the same time → one status write → events

What a job *is* is said by its `Kind`; this file knows only that a kind has plans, actions and statuses. Own writes are
put into the caches as soon as they are answered, so that the next sync knows them: there is nothing to expect and
nothing to wait for. A job with nothing to do costs no request, a finished one none ever again but for its time to live.

A status that differs only in figures (how many are ready) rests for `Kind.minor_delay_seconds` or longer, and goes
along with the next change of substance if that comes first.

While other jobs wait for a worker, one that has just got its children goes to the back of the line before it says so:
children first, words after. That also saves the write, where the job runs by the time it gets there.

Threads: `sync` may be called by many workers, but never for one key at a time by two (the queue sees to that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import structlog

from tfjob_controller.api.core import Scale
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.controller.faults import Fault, outcome_of
from tfjob_controller.controller.outcome import DONE, GONE, GiveUp, Outcome, RequeueAfter, Retry
from tfjob_controller.controller.snapshot import Snapshots
from tfjob_controller.controller.writer import Report, Writer
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.clock import Clock
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events import ObjectReference
from tfjob_controller.kube.meta import Object, ObjectT, Resource, key_of
from tfjob_controller.kube.store import Store
from tfjob_controller.trainer import reasons
from tfjob_controller.trainer.difference import plan_actions, stop_all
from tfjob_controller.trainer.emit import NORMAL, WARNING
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.phases import is_finished
from tfjob_controller.trainer.plan import Plan, UnplannableError
from tfjob_controller.trainer.status import StatusResult, finished_status, invalid_status, next_status, waiting_status
from tfjob_controller.trainer.substance import is_minor
from tfjob_controller.trainer.work import PlainWork, Work

log = structlog.get_logger(__name__)

# Each further write of figures alone waits twice as long, up to the cap: replicas that come one by one, for minutes,
# cost a few writes and not one each. A change of substance starts over.
MINOR_DELAY_CAP_SECONDS = 8.0
# How soon a job that made room for others gets back in line, behind all that wait by then.
YIELD_SECONDS = 0.05


_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class Kind(Protocol[_JobT]):
    """What a kind of job is, as far as it differs from the others. All but `told` are pure; none does I/O."""

    @property
    def resource(self) -> Resource: ...

    @property
    def minor_delay_seconds(self) -> float:
        """For how long a change of mere figures rests before it is written."""

    def is_ours(self, job: _JobT) -> bool:
        """False for a job that another controller runs: nothing is ever done about it."""

    def work_of(self, job: _JobT) -> Work: ...

    def problem(self, job: _JobT, before: _JobT | None, *, has_children: bool = False) -> str | None:
        """Why the job cannot be run, if so; `before` is its last valid state that was seen, if any.

        `has_children` says that some were made of it, which its status may not say yet.
        """

    def identity_patch(self, job: _JobT) -> Mapping[str, Any] | None:
        """The change of the spec that gives the job its names, before its first child; None once it has them."""

    def plan(self, job: _JobT) -> Plan:
        """Raises UnplannableError."""

    def look(self, job: _JobT, plan: Plan, observed: Observed) -> Observed:
        """What the caches hold, and what the kind knows besides."""

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status, None if nothing differs."""

    def told(self, before: Work, status: TrainingStatus, now: datetime) -> None:
        """The status was written: count what it means."""

    def gone(self, key: str) -> None:
        """There is no such job any more."""


class Recorder(Protocol):
    """Takes events and never blocks; `kube.events.EventRecorder`."""

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None: ...


@dataclass(slots=True)
class _Memo(Generic[ObjectT]):
    """What is known of one generation of a job, so that it need not be found out again at each sync."""

    job: ObjectT
    problem: str | None
    plan: Plan | None = None
    # Whether children were made of any generation: a change may come before the status that says so.
    has_children: bool = False
    # A status that waits to be written, and since when (monotonic): mere figures. Decisions are made on it as if it
    # were written, so that nothing which it remembers is lost when the child that it was read from goes.
    deferred: TrainingStatus | None = None
    # The written status that it follows on: once that is another, the deferred one is out of date.
    deferred_from: TrainingStatus | None = None
    deferred_since: float = 0.0
    minor_delay_seconds: float = 0.0
    # Writes whose events wait for a status; empty but for a job that made room for others.
    untold: list[Report] = field(default_factory=list)


class Engine(Generic[ObjectT]):
    """Syncs jobs of one kind."""

    def __init__(
        self,
        kind: Kind[ObjectT],
        client: ResourceClient[ObjectT],
        store: Store[ObjectT],
        snapshots: Snapshots,
        writer: Writer,
        recorder: Recorder,
        clock: Clock,
        is_busy: Callable[[], bool] = lambda: False,
        scales: ResourceClient[Scale] | None = None,
    ) -> None:
        """`scales` writes the scale subresource of jobs; without it none is ever resized by us."""
        self._kind = kind
        self._client = client
        self._store = store
        self._snapshots = snapshots
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._is_busy = is_busy
        self._scales = scales
        self._memos: dict[str, _Memo[ObjectT]] = {}

    def sync(self, key: str) -> Outcome:
        """Bring one job closer to what it should be. Raises nothing that a retry could mend."""
        job = self._store.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            self._memos.pop(key, None)  # deleting its children is the garbage collector's
            self._kind.gone(key)
            return GONE if job is None else DONE
        if not self._kind.is_ours(job):
            return DONE
        if is_finished(self._kind.work_of(job).status):
            self._memos.pop(key, None)
            self._kind.gone(key)
            return self._retire(job)
        try:
            return self._sync_live(key, job)
        except ApiError as error:
            return outcome_of(error, f"write {self._kind.resource.kind} {job.metadata.name}")

    @property
    def remembered(self) -> int:
        """How many jobs are held in memory beyond the cache: those that are not finished."""
        return len(self._memos)

    def _sync_live(self, key: str, job: ObjectT) -> Outcome:
        memo = self._memo(key, job)
        if memo.problem is not None:
            return self._refuse(job, memo, memo.problem)
        identity = self._kind.identity_patch(job)
        if identity is not None:
            job = self._identify(job, identity)
            memo = self._memo(key, job)
        try:
            plan = memo.plan = memo.plan or self._kind.plan(job)
            # A plan may ask for more as its children are made.
            return self._sync_planned(job, memo, plan)
        except UnplannableError as error:
            return self._wait_for_plan(job, memo, error)

    def _wait_for_plan(self, job: ObjectT, memo: _Memo[ObjectT], error: UnplannableError) -> Outcome:
        """It refers to what is not there, and may come in a moment."""
        if error.seconds_left <= 0:
            return self._refuse(job, memo, str(error))
        self._write_status(job, memo, waiting_status(self._kind.work_of(job), str(error), self._clock.now()))
        return RequeueAfter(error.seconds_left)

    def _refuse(self, job: ObjectT, memo: _Memo[ObjectT], why: str) -> Outcome:
        """A job may become invalid while it runs (under an older CRD).

        Its children are stopped before its end is on record, since a finished job is never looked at again.
        """
        report = self._writer.carry_out(job, stop_all(*self._snapshots.unplanned(job)))
        outcome = _outcome(report.faults, None)
        if isinstance(outcome, Retry):
            return outcome
        self._write_status(job, memo, invalid_status(self._kind.work_of(job), why, self._clock.now()))
        return GiveUp(why)

    def _sync_planned(self, job: ObjectT, memo: _Memo[ObjectT], plan: Plan) -> Outcome:
        now = self._clock.now()
        current = self._current(job, memo)
        observed = self._observe(job, plan)
        actions = plan_actions(current, plan, observed, now)
        faults: Sequence[Fault] = ()
        if actions:
            report = self._writer.carry_out(job, actions)
            faults = report.faults
            memo.has_children |= bool(report.created)
            memo.untold.append(report)
            if self._makes_room(memo):
                return RequeueAfter(YIELD_SECONDS)
            observed = self._observe(job, plan)
        try:
            result = next_status(current, plan, observed, now, _obstacles(faults))
            rest_seconds = self._write_status(job, memo, result)
            if result.suspend_job and rest_seconds is None:
                self._suspend(job)
            if result.scale_to is not None and rest_seconds is None:
                self._scale(job, result.scale_to)
        finally:
            self._tell_writes(job, memo)
        return _outcome(faults, _sooner(result.wake_after_seconds, rest_seconds))

    def _observe(self, job: ObjectT, plan: Plan) -> Observed:
        return self._kind.look(job, plan, self._snapshots.take(job, plan))

    def _makes_room(self, memo: _Memo[ObjectT]) -> bool:
        """Once, if nothing was in the way and others wait."""
        (*earlier, report) = memo.untold
        return not earlier and bool(report.created) and not report.faults and self._is_busy()

    def _current(self, job: ObjectT, memo: _Memo[ObjectT]) -> Work:
        """The job with the status that waits to be written, if there is one."""
        work = self._kind.work_of(job)
        if memo.deferred is not None and memo.deferred_from != work.status:
            memo.deferred = None
        if memo.deferred is None:
            return work
        return PlainWork(work.metadata, memo.deferred, work.ttl_seconds_after_finished)

    def _memo(self, key: str, job: ObjectT) -> _Memo[ObjectT]:
        """Judge each generation of a job once."""
        memo = self._memos.get(key)
        same = memo is not None and memo.job.metadata.uid == job.metadata.uid
        if memo is not None and same and memo.job.metadata.generation == job.metadata.generation:
            return memo
        before = memo.job if memo is not None and same and memo.problem is None else None
        has_children = before is not None and self._memos[key].has_children
        problem = self._kind.problem(job, before, has_children=has_children)
        if memo is not None and same:
            new = replace(memo, job=job, problem=problem, plan=None)
        else:
            new = _Memo(job, problem, minor_delay_seconds=self._kind.minor_delay_seconds)
        self._memos[key] = new
        return new

    def _identify(self, job: ObjectT, identity: Mapping[str, Any]) -> ObjectT:
        """Written before the first child exists, and only if nobody else has written meanwhile."""
        meta = job.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid}, **identity}
        identified = self._client.patch(meta.namespace, meta.name, body)
        self._store.assume(identified)
        log.info("identified", **identity)
        return identified

    def _suspend(self, job: ObjectT) -> None:
        """Whatever else was written meanwhile: this changes one field of the same object."""
        meta = job.metadata
        body = {"metadata": {"uid": meta.uid}, "spec": {"suspend": True}}
        self._store.assume(self._client.patch(meta.namespace, meta.name, body))
        log.info("suspended")

    def _scale(self, job: ObjectT, workers: int) -> None:
        """Only if nobody has changed the spec since it was looked at: the wish may be out of date then."""
        meta, known = job.metadata, self._store.get(key_of(job))
        if self._scales is None or known is None or known.metadata.generation != meta.generation:
            return
        body = {"metadata": {"resourceVersion": known.metadata.resource_version}, "spec": {"replicas": workers}}
        try:
            self._scales.patch(meta.namespace, meta.name, body, subresource="scale")
        except ApiError as error:
            if not error.is_conflict:
                raise
            log.info("somebody else wrote first", workers=workers)
        else:
            log.info("scaled", workers=workers)

    def _write_status(self, job: ObjectT, memo: _Memo[ObjectT], result: StatusResult) -> float | None:
        """Write what differs and emit its events; the answer is for how long a minor write may still rest, if so."""
        change = self._kind.status_change(job, result.status)
        if change is None:
            memo.deferred = None
            return None
        rest_seconds = self._defer_seconds(job, memo, result)
        if rest_seconds > 0:
            return rest_seconds
        meta = job.metadata
        self._store.assume(self._client.patch(meta.namespace, meta.name, change, subresource="status"))
        memo.deferred = None
        memo.minor_delay_seconds = self._next_delay_seconds(job, memo, result)
        self._kind.told(self._kind.work_of(job), result.status, self._clock.now())
        self._emit(job, result)
        return None

    def _defer_seconds(self, job: ObjectT, memo: _Memo[ObjectT], result: StatusResult) -> float:
        """For how long a write can wait; 0 for one of substance, or one that has waited."""
        if not self._is_minor(job, result):
            return 0.0
        now = self._clock.monotonic()
        if memo.deferred is None:
            memo.deferred_since = now
        memo.deferred, memo.deferred_from = result.status, self._kind.work_of(job).status
        return max(0.0, memo.deferred_since + memo.minor_delay_seconds - now)

    def _next_delay_seconds(self, job: ObjectT, memo: _Memo[ObjectT], result: StatusResult) -> float:
        """How long figures wait after this write."""
        if not self._is_minor(job, result):
            return self._kind.minor_delay_seconds
        return min(MINOR_DELAY_CAP_SECONDS, 2 * memo.minor_delay_seconds)

    def _is_minor(self, job: ObjectT, result: StatusResult) -> bool:
        return is_minor(self._kind.work_of(job).status, result)

    def _retire(self, job: ObjectT) -> Outcome:
        """A finished job: nothing, until its time to live is over."""
        result = finished_status(self._kind.work_of(job), self._clock.now())
        if result.delete_job:
            meta = job.metadata
            try:
                self._client.delete(meta.namespace, meta.name, uid=meta.uid)
            except ApiError as error:
                # A conflict says that another job has the name by now.
                return DONE if error.is_conflict else outcome_of(error, f"delete {meta.name}")
            log.info("deleted, its time to live is over")
            return DONE
        return DONE if result.wake_after_seconds is None else RequeueAfter(result.wake_after_seconds)

    def _emit(self, job: ObjectT, result: StatusResult) -> None:
        reference = self._reference(job)
        for event in result.events:
            self._recorder.event(reference, event.type, event.reason, event.note)
            log.info("event", type=event.type, reason=event.reason, note=event.note)

    def _tell_writes(self, job: ObjectT, memo: _Memo[ObjectT]) -> None:
        untold, memo.untold = memo.untold, []
        for report in untold:
            self._tell(job, report)

    def _tell(self, job: ObjectT, report: Report) -> None:
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

    def _reference(self, job: ObjectT) -> ObjectReference:
        meta, resource = job.metadata, self._kind.resource
        return ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


def _obstacles(faults: Sequence[Fault]) -> list[Obstacle]:
    """Each sentence once, permanent ones first: they decide."""
    words = {fault.words: fault.permanent for fault in sorted(faults, key=lambda fault: not fault.permanent)}
    return [Obstacle(sentence, permanent) for sentence, permanent in words.items()]


def _outcome(faults: Sequence[Fault], wake_after_seconds: float | None) -> Outcome:
    passing = [fault for fault in faults if not fault.permanent]
    permanent = [fault for fault in faults if fault.permanent]
    if permanent:
        return GiveUp(permanent[0].words)
    if passing:
        after_seconds = max(fault.after_seconds for fault in passing)
        is_error = any(fault.is_error for fault in passing)
        return Retry(passing[0].words, after_seconds, wake_after_seconds, is_error)
    return DONE if wake_after_seconds is None else RequeueAfter(wake_after_seconds)


def _sooner(first: float | None, second: float | None) -> float | None:
    return min((seconds for seconds in (first, second) if seconds is not None), default=None)


def _in_words(resource: Resource) -> str:
    """`job`, `service`, `config map`: as upstream's events say it."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in resource.kind).strip()
