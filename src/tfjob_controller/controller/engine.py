"""The sync: what the cluster holds of a job is compared with what it should hold, and the difference is written.

Theory of operation. `Engine.sync(key)` is level-triggered: it looks at the caches as they are, whatever happened.

    snapshot from caches → plan (pure) → difference (pure) → writes, at the same time → one status write → events

What a job *is* is said by its `Kind`; this file knows only that a kind has plans, actions and statuses. Own writes are
put into the caches as soon as they are answered, so that the next sync knows them: there is nothing to expect and
nothing to wait for. A job with nothing to do costs no request, a finished one none ever again but for its time to live.

A status that differs only in figures rests before it is written (reporter.py).

The cache may not know yet that a job is being deleted, for a watch that is half open tells nothing; then the garbage
collector takes its children away, and they would be recreated each time. So before what had been there is recreated,
the server is asked whether the job is still to be (client-go's RecheckDeletionTimestamp). No new job costs that.

While other jobs wait for a worker, one that has just got its children goes to the back of the line before it says so:
children first, words after. That also saves the write, where the job runs by the time it gets there.

Threads: `sync` may be called by many workers, but never for one key at a time by two (the queue sees to that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import structlog

from tfjob_controller.api.common.core import Scale
from tfjob_controller.controller.kind import KindAdapter
from tfjob_controller.controller.outcome import (
    DONE,
    NOT_FOUND,
    Fault,
    Outcome,
    RequeueAfter,
    Retry,
    TerminalFailure,
    obstacles_of,
    outcome_after,
    outcome_of,
)
from tfjob_controller.controller.reporter import JobEventRecorder, Reporter, StatusDebounce
from tfjob_controller.controller.snapshot import Snapshots
from tfjob_controller.controller.writer import Writer, WriteResult
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectT, key_of
from tfjob_controller.trainer.actions.model import Actions
from tfjob_controller.trainer.actions.planner import plan_actions, stop_all
from tfjob_controller.trainer.plan.model import Plan, UnplannableError
from tfjob_controller.trainer.state.evaluation import evaluate
from tfjob_controller.trainer.state.observed import ObservedState, is_finished
from tfjob_controller.trainer.status.update import (
    StatusResult,
    finished_status,
    invalid_status,
    next_status,
    waiting_status,
)
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# How soon a job that made room for others gets back in line, behind all that wait by then.
YIELD_SECONDS = 0.05


@dataclass(slots=True)
class _Memo(Generic[ObjectT]):
    """What is known of one generation of a job, so that it need not be found out again at each sync."""

    job: ObjectT
    problem: str | None
    debounce: StatusDebounce
    plan: Plan | None = None
    # Whether children were made of any generation: a change may come before the status that says so.
    has_children: bool = False
    # How many children it had before any went that were not recreated yet; None: another process had it before.
    children: int | None = 0
    # Writes whose events wait for a status; empty but for a job that made room for others.
    unreported: list[WriteResult] = field(default_factory=list)

    def has_lost_some(self, children: int) -> bool:
        return self.children is None or children < self.children


class Engine(Generic[ObjectT]):
    """Syncs jobs of one kind."""

    def __init__(
        self,
        kind: KindAdapter[ObjectT],
        client: ResourceClient[ObjectT],
        store: Store[ObjectT],
        snapshots: Snapshots,
        writer: Writer,
        recorder: JobEventRecorder,
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
        self._reporter = Reporter(kind.resource, recorder)
        self._clock = clock
        self._is_busy = is_busy
        self._scales = scales
        self._memos: dict[str, _Memo[ObjectT]] = {}
        # The UIDs, by key, of finished jobs whose deletion the server has accepted and the watch has not told yet.
        self._deleted: dict[str, str] = {}

    def sync(self, key: str) -> Outcome:
        """Bring one job closer to what it should be. Raises nothing that a retry could mend."""
        job = self._store.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            self._memos.pop(key, None)  # deleting its children is the garbage collector's
            self._deleted.pop(key, None)
            self._kind.forget(key)
            return NOT_FOUND if job is None else DONE
        if not self._kind.is_managed(job):
            return DONE
        if is_finished(self._kind.work_of(job).status):
            self._memos.pop(key, None)
            self._kind.forget(key)
            return self._retire(key, job)
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
        report = self._writer.apply(job, stop_all(*self._snapshots.children_to_stop(job)))
        outcome = outcome_after(report.faults, None)
        if isinstance(outcome, Retry):
            return outcome
        self._write_status(job, memo, invalid_status(self._kind.work_of(job), why, self._clock.now()))
        return TerminalFailure(why)

    def _sync_planned(self, job: ObjectT, memo: _Memo[ObjectT], plan: Plan) -> Outcome:
        now = self._clock.now()
        current = memo.debounce.with_pending(self._kind.work_of(job))
        observed = self._observe(job, plan)
        state = evaluate(current, plan, observed, now)
        actions = plan_actions(state)
        faults: Sequence[Fault] = ()
        if not self._may_act(job, memo, observed, actions):
            return DONE
        if actions:
            report = self._writer.apply(job, actions)
            faults = report.faults
            memo.has_children |= bool(report.created)
            memo.children = (memo.children or 0) + len(report.created)
            memo.unreported.append(report)
            if self._makes_room(memo):
                return RequeueAfter(YIELD_SECONDS)
        try:
            if actions:
                state = evaluate(current, plan, self._observe(job, plan), now)
            result = next_status(state, obstacles_of(faults))
            rest_seconds = self._write_status(job, memo, result)
            if result.suspend_job and rest_seconds is None:
                self._suspend(job)
            if result.scale_to is not None and rest_seconds is None:
                self._scale(job, result.scale_to)
        finally:
            unreported, memo.unreported = memo.unreported, []
            for report in unreported:
                self._reporter.report_writes(job, report)
        return outcome_after(faults, _sooner(result.wake_after_seconds, rest_seconds))

    def _may_act(self, job: ObjectT, memo: _Memo[ObjectT], observed: ObservedState, actions: Actions) -> bool:
        """Not if something would be recreated for a job that is on its way out."""
        if actions.creates and memo.has_lost_some(observed.count) and not self._is_still_there(job):
            return False
        memo.children = observed.count if actions.creates else max(observed.count, memo.children or 0)
        return True

    def _is_still_there(self, job: ObjectT) -> bool:
        """Whatever the cache says. By a list, since that is what we have a right to."""
        meta = job.metadata
        for live in self._client.list(meta.namespace, field_selector=f"metadata.name={meta.name}"):
            if live.metadata.uid == meta.uid and live.metadata.deletion_timestamp is None:
                return True
            self._store.assume(live)
        log.info("the job is being deleted: children are not recreated")
        return False

    def _observe(self, job: ObjectT, plan: Plan) -> ObservedState:
        return self._kind.follow_logs(job, plan, self._snapshots.take(job, plan))

    def _makes_room(self, memo: _Memo[ObjectT]) -> bool:
        """Once, if nothing was in the way and others wait."""
        (*earlier, report) = memo.unreported
        return not earlier and bool(report.created) and not report.faults and self._is_busy()

    def _memo(self, key: str, job: ObjectT) -> _Memo[ObjectT]:
        """Judge each generation of a job once."""
        known = self._memos.get(key)
        if known is None or known.job.metadata.uid != job.metadata.uid:
            new = _Memo(job, self._kind.problem(job, None), StatusDebounce(self._kind.status_debounce_seconds))
            new.children = None if self._kind.work_of(job).status.phase else 0
        elif known.job.metadata.generation == job.metadata.generation:
            return known
        else:
            before = known.job if known.problem is None else None
            problem = self._kind.problem(job, before, has_children=known.has_children)
            new = replace(known, job=job, problem=problem, plan=None)
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
            memo.debounce.clear()
            return None
        before = self._kind.work_of(job)
        rest_seconds = memo.debounce.remaining_seconds(before, result, self._clock.monotonic())
        if rest_seconds > 0:
            return rest_seconds
        meta = job.metadata
        self._store.assume(self._client.patch(meta.namespace, meta.name, change, subresource="status"))
        memo.debounce.record_write(before, result)
        self._kind.status_written(before, result.status, self._clock.now())
        self._reporter.report_status(job, result.events)
        return None

    def _retire(self, key: str, job: ObjectT) -> Outcome:
        """A finished job: nothing, until its time to live is over.

        Its children may be gone from their caches before the job is gone from its own, and queue it once more. So the
        deletion is remembered until the watch confirms it; otherwise it would be requested again.
        """
        result = finished_status(self._kind.work_of(job), self._clock.now())
        if not result.delete_job:
            return DONE if result.wake_after_seconds is None else RequeueAfter(result.wake_after_seconds)
        meta = job.metadata
        if self._deleted.get(key) == meta.uid:
            return DONE
        try:
            self._client.delete(meta.namespace, meta.name, uid=meta.uid)
        except ApiError as error:
            # A conflict says that another job has the name by now.
            return DONE if error.is_conflict else outcome_of(error, f"delete {meta.name}")
        self._deleted[key] = meta.uid
        log.info("deleted, its time to live is over")
        return DONE


def _sooner(first: float | None, second: float | None) -> float | None:
    return min((seconds for seconds in (first, second) if seconds is not None), default=None)
