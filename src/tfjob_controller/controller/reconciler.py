"""The reconciler: compares what the cluster holds of a job with what it should hold, and writes the difference.

Theory of operation. `Reconciler.sync(key)` is level-triggered: it reads the caches as they are, whatever event queued
the job. `_reconcile` applies the rules of a sync in their order:

    being deleted       it is recorded in the history, if there is one; the garbage collector deletes the children
    not managed         nothing: another controller runs the job
    finished            the job, or for some kinds its child Jobs, are deleted once its time to live is over
    ended, recorded not its pods, which have its logs, stay for a limited time
    invalid             its children are stopped, then its status becomes Failed
    without identity    its RuntimeId is written before the first child
    not plannable yet   its status shows what it waits for
    all others          `_sync_children`: events of pods, writes, one status and its events, the spec, events of writes

The last row is the same for all jobs that run, are suspended or end. `jobs.actions.planner.plan_actions` decides
which children are suspended, cleaned up, deleted and created, `jobs.status.update.next_status` whether the job has
failed or completed and whether it must be suspended or scaled. Both read one evaluation of the job. What differs
between kinds of jobs is in the `KindAdapter`.

Another client may revert what is written to a child, such as a queue that suspends child Jobs. Such writes are counted
and delayed (jobs/actions/reverted.py), and the status names the child and the client.

The response to each write is put into the cache at once, so the next sync sees it. A job with nothing to do costs no
request. A status that differs only in counts is delayed (reporter.py).

A watch whose connection is half open delivers nothing, so the cache may not show yet that a job is being deleted. The
garbage collector deletes its children then, and each sync would recreate them. Therefore the API server is asked for
a newer state of the job before a child is recreated (client-go's `RecheckDeletionTimestamp`), and which pods a child
Job has left that somebody else has deleted. A new job does not need these requests.

While other jobs wait for a worker, a job whose children have just been created is queued again before its status is
written: children have priority over statuses. The write is often not needed at all by then. A job that has written
children for `MAX_WRITE_SECONDS` is queued again, too, so that a few jobs of thousands of replicas do not keep all
workers from the jobs of other namespaces.

Threads: `sync` may be called by many workers, but not for the same key at the same time, which the queue guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic

import structlog

from tfjob_controller.api.common.core import JOBS, PODS, Scale
from tfjob_controller.controller.jobhistory import NO_HISTORY, JobHistory
from tfjob_controller.controller.kind import KindAdapter, WithEvents, WithIdentity, WithLogs, WithRecord
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
from tfjob_controller.controller.reporter import (
    JobEventRecorder,
    JobObserver,
    Reporter,
    StatusDebounce,
    ToldEvents,
    observe_status,
)
from tfjob_controller.controller.snapshot import Snapshots
from tfjob_controller.controller.writer import Writer, WriteResult
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.actions.model import Actions, Create, build_delete
from tfjob_controller.jobs.actions.planner import plan_actions, stop_all
from tfjob_controller.jobs.actions.reverted import ChangeTracker, reverted_message
from tfjob_controller.jobs.evaluation.cleanup import is_active
from tfjob_controller.jobs.evaluation.jobstate import JobState, evaluate
from tfjob_controller.jobs.evaluation.silence import explained, unexplained
from tfjob_controller.jobs.naming import CHILD_SELECTOR, POD_JOB_NAME, RUNTIME_ID
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.status.update import (
    StatusResult,
    finished_status,
    invalid_status,
    next_status,
    waiting_status,
)
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, TrainingJob, is_finished
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectT, key_of
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# The delay of a job that yields to others: it comes after all jobs that are queued by then.
YIELD_SECONDS = 0.05
# So many Jobs are named in a selector; beyond that all pods of a job are asked for.
_MAX_NAMES = 20
# How long a sync begins new writes of children while other jobs wait for a worker.
MAX_WRITE_SECONDS = 0.5

# Returns the newest warnings about the first of some objects by their UIDs, given the namespace and the UIDs.
WarningsOf = Callable[[str, Sequence[str]], Mapping[str, str]]


@dataclass(slots=True)
class _JobRecord(Generic[ObjectT]):
    """What is kept of a job between two syncs: the results for its generation, and what is not reported yet."""

    job: ObjectT
    # Why this generation is invalid; None if it is valid.
    problem: str | None
    debounce: StatusDebounce
    changes: ChangeTracker
    told: ToldEvents
    # The plan of this generation; None until it has been made.
    plan: Plan | None = None
    # Reports whether any generation has had children: a change may arrive before the status that records it.
    has_children: bool = False
    # How many children existed before some were deleted that are not recreated yet. None if another process created
    # children, so that the number is unknown.
    child_count: int | None = 0
    # Writes whose events wait for a status. Not empty between two syncs only if the job has yielded.
    unreported: list[WriteResult] = field(default_factory=list)

    def has_lost_children(self, observed_count: int) -> bool:
        return self.child_count is None or observed_count < self.child_count

    def record_observed(self, observed_count: int, actions: Actions) -> None:
        self.child_count = observed_count if actions.creates else max(observed_count, self.child_count or 0)

    def record_writes(self, result: WriteResult) -> None:
        self.has_children |= bool(result.created)
        self.child_count = (self.child_count or 0) + len(result.created)
        self.unreported.append(result)


class Reconciler(Generic[ObjectT]):
    """Syncs jobs of one kind."""

    def __init__(
        self,
        kind: KindAdapter[ObjectT],
        client: ResourceClient[ObjectT],
        store: Store[ObjectT],
        snapshots: Snapshots,
        writer: Writer,
        recorder: JobEventRecorder,
        observer: JobObserver,
        clock: Clock,
        is_busy: Callable[[], bool] = lambda: False,
        scales: ResourceClient[Scale] | None = None,
        warnings_of: WarningsOf = lambda namespace, uids: {},
        history: JobHistory = NO_HISTORY,
    ) -> None:
        """`is_busy` reports whether other jobs wait for a worker. `scales` writes the scale subresource of jobs;
        without it no job is scaled.
        """
        self._kind = kind
        # The optional parts of the kind.
        self._identity = kind if isinstance(kind, WithIdentity) else None
        self._logs = kind if isinstance(kind, WithLogs) else None
        self._record = kind if isinstance(kind, WithRecord) else None
        self._events = kind if isinstance(kind, WithEvents) else None
        self._client = client
        self._store = store
        self._snapshots = snapshots
        self._writer = writer
        self._reporter = Reporter(kind.resource, recorder, is_by_kind=self._events is not None)
        self._observer = observer
        self._clock = clock
        self._is_busy = is_busy
        self._scales = scales
        self._warnings_of = warnings_of
        self._history = history
        self._records: dict[str, _JobRecord[ObjectT]] = {}
        # The UIDs, by key, of expired jobs whose deletion was accepted but is not in the cache yet.
        self._deletions: dict[str, str] = {}

    @property
    def tracked_jobs(self) -> int:
        """The number of jobs that are kept in memory beyond the cache: those that are not finished."""
        return len(self._records)

    def sync(self, key: str) -> Outcome:
        """Brings one job closer to its desired state. Raises nothing that a retry could correct."""
        job = self._store.get(key)
        if job is None:
            self._forget_deleted(key)
            return NOT_FOUND
        try:
            return self._reconcile(key, job)
        except ApiError as error:
            return outcome_of(error, f"write {self._kind.resource.kind} {job.metadata.name}")

    def _reconcile(self, key: str, job: ObjectT) -> Outcome:
        """Applies the rules of a sync in their order; the table at the top lists them."""
        if job.metadata.deletion_timestamp is not None:
            self._forget_deleted(key)
            if self._kind.is_managed(job):
                self._history.record_deletion(job)
            return DONE
        if not self._kind.is_managed(job):
            return DONE
        work = self._kind.work_of(job)
        if is_finished(work.status):
            self._forget(key)
            self._stop_restarted(job, work)
            return self._delete_if_expired(key, job, work, self._history.seconds_to_wait(job, work.status))
        record = self._record_of(key, job)
        if record.problem is not None:
            return self._fail_invalid(job, record, record.problem)
        if self._identity is not None and not self._identity.has_identity(job):
            job = self._write_identity(job, self._identity.identity_patch(job))
            record, work = self._record_of(key, job), self._kind.work_of(job)
        try:
            plan = record.plan = record.plan or self._kind.plan(job)
            if work.status.phase == PHASE_CLEAN_UP and (seconds := self._history.seconds_to_wait(job, work.status)) > 0:
                return RequeueAfter(seconds)
            return self._sync_children(job, work, record, plan)
        except UnplannableError as error:
            # A framework may raise it as late as a child's environment is built.
            return self._wait_for_plan(job, record, error)

    def _sync_children(self, job: ObjectT, work: TrainingJob, record: _JobRecord[ObjectT], plan: Plan) -> Outcome:
        """Evaluates the job, and writes children, status and spec in this order. Events follow their writes."""
        now = self._clock.now()
        current = record.debounce.with_pending(work)
        observed = self._observe(job, plan)
        self._report_pods(job, work, record, plan, observed)
        state = self._evaluate(current, plan, observed, now)
        count, monotonic = observed.count(plan), self._clock.monotonic()
        has_lost_children = record.has_lost_children(count)
        actions = record.changes.allowed(plan_actions(state), monotonic, has_lost_children=has_lost_children)
        if actions.creates and has_lost_children:
            if (outcome := self._outcome_if_outdated(job)) is not None:
                return outcome
            if self._finds_pods(job, plan, record.changes.not_deleted(actions.creates)):
                return RequeueAfter(0.0)
        record.record_observed(count, actions)
        faults: Sequence[Fault] = ()
        if actions:
            result = self._apply(job, actions)
            faults = result.faults
            record.record_writes(result)
            record.changes.record(
                now=monotonic,
                has_lost_children=has_lost_children,
                created=(*result.created, *result.adopted),
                deleted=result.deleted,
                changed=result.changed,
            )
            if self._must_yield(record):
                return RequeueAfter(YIELD_SECONDS)
        try:
            if actions:
                state = self._evaluate(current, plan, self._observe(job, plan), now)
            due = next_status(state, obstacles_of(faults), self._describe_reverted(job, record.changes))
            delay_seconds = self._write_status(job, record, due)
            if delay_seconds is None:
                self._write_spec(job, due)
        finally:
            self._report_writes(job, record)
        wake_after_seconds = _earliest(due.wake_after_seconds, delay_seconds)
        return outcome_after(faults, _earliest(wake_after_seconds, record.changes.seconds_until_change(monotonic)))

    def _describe_reverted(self, job: ObjectT, changes: ChangeTracker) -> str:
        """Describes the changes that another client keeps reverting. That client is looked up once."""
        reverted = changes.reverted()
        if reverted and changes.needs_editor(reverted[0]):
            changes.set_editor(reverted[0], self._writer.editor_of(job.metadata.namespace, reverted[0]))
            reverted = changes.reverted()
        return reverted_message(reverted)

    def _stop_restarted(self, job: ObjectT, work: TrainingJob) -> None:
        """Stops what a kubelet starts again in the pods that a finished job has left (`cleanPodPolicy: None`)."""
        children, *_ = self._snapshots.children_to_stop(job)
        if not any(map(is_active, children)):
            return
        try:
            plan = self._kind.plan(job)
        except UnplannableError:
            return
        state = evaluate(work, plan, self._snapshots.take(job, plan), self._clock.now())
        if actions := plan_actions(state):
            self._apply(job, actions)

    def _delete_if_expired(self, key: str, job: ObjectT, work: TrainingJob, wait_seconds: float) -> Outcome:
        """Deletes a finished job once its time to live is over, after `wait_seconds` in which it is recorded.

        The deletion of its children may arrive before its own, and queue it again. Its deletion is therefore kept until
        the watch confirms it, and not requested twice.
        """
        result = finished_status(work, self._clock.now())
        if not result.delete_job:
            return DONE if result.wake_after_seconds is None else RequeueAfter(result.wake_after_seconds)
        if wait_seconds > 0:
            return RequeueAfter(wait_seconds)
        if not self._kind.is_deleted_when_expired:
            return self._delete_child_jobs(job)
        meta = job.metadata
        if self._deletions.get(key) == meta.uid:
            return DONE
        try:
            self._client.delete(meta.namespace, meta.name, uid=meta.uid)
        except ApiError as error:
            # A conflict means that another job has the name by now.
            return DONE if error.is_conflict else outcome_of(error, f"delete {meta.name}")
        self._deletions[key] = meta.uid
        self._observer.job_deleted(self._kind.resource.kind, meta.namespace)
        if self._events is not None:
            self._reporter.report_status(job, [self._events.deletion_event(job)])
        log.info("job deleted: its time to live is over")
        return DONE

    def _delete_child_jobs(self, job: ObjectT) -> Outcome:
        """Deletes the child Jobs of a finished job with their pods."""
        jobs, *_ = self._snapshots.children_to_stop(job)
        left = (child for child in jobs if child.metadata.deletion_timestamp is None)
        result = self._apply(job, Actions(deletes=tuple(build_delete(JOBS, child) for child in left)))
        self._reporter.report_writes(job, result)
        return RequeueAfter(YIELD_SECONDS) if result.is_partial else outcome_after(result.faults, None)

    def _fail_invalid(self, job: ObjectT, record: _JobRecord[ObjectT], problem: str) -> Outcome:
        """Ends an invalid job. A job may become invalid while it runs, if an older CRD admits the change.

        Its children are stopped before its status becomes Failed, because children of a finished job are not synced.
        """
        result = self._apply(job, stop_all(*self._snapshots.children_to_stop(job)))
        if result.is_partial:
            return RequeueAfter(YIELD_SECONDS)
        outcome = outcome_after(result.faults, None)
        if isinstance(outcome, Retry):
            return outcome
        self._write_status(job, record, invalid_status(self._kind.work_of(job), problem, self._clock.now()))
        return TerminalFailure(problem)

    def _wait_for_plan(self, job: ObjectT, record: _JobRecord[ObjectT], error: UnplannableError) -> Outcome:
        """Waits for an object that the job refers to, or fails the job if it has waited for too long."""
        if error.seconds_left <= 0:
            return self._fail_invalid(job, record, str(error))
        self._write_status(job, record, waiting_status(self._kind.work_of(job), str(error), self._clock.now()))
        return RequeueAfter(error.seconds_left)

    def _apply(self, job: ObjectT, actions: Actions) -> WriteResult:
        ends_at = self._clock.monotonic() + MAX_WRITE_SECONDS
        return self._writer.apply(job, actions, lambda: self._clock.monotonic() >= ends_at and self._is_busy())

    def _write_identity(self, job: ObjectT, identity: Mapping[str, Any]) -> ObjectT:
        """Writes the identity before the first child is created, unless the job has changed since it was read."""
        meta = job.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid}, **identity}
        identified = self._client.patch(meta.namespace, meta.name, body)
        self._store.assume(identified)
        log.info("identity written", **identity)
        return identified

    def _observe(self, job: ObjectT, plan: Plan) -> ObservedState:
        observed = self._snapshots.take(job, plan)
        return observed if self._logs is None else self._logs.follow_logs(job, plan, observed)

    def _evaluate(self, job: TrainingJob, plan: Plan, observed: ObservedState, now: datetime) -> JobState:
        """Evaluates the job; once more with the warnings about children whose status does not say why they wait."""
        state = evaluate(job, plan, observed, now)
        uids = unexplained(state)
        warnings = explained(uids, self._warnings_of(job.metadata.namespace, uids)) if uids else {}
        return evaluate(job, plan, observed.with_warnings(warnings), now) if warnings else state

    def _outcome_if_outdated(self, job: ObjectT) -> Outcome | None:
        """Asks the API server for the job before what has vanished is recreated; None if the cache has its last state.

        The watch of children may be ahead of that of jobs: the job is being deleted, or a second process that believes
        to lead has ended, resized or restarted it. The request is a list, because the controller has no right to get
        single jobs.
        """
        meta = job.metadata
        for live in self._client.list(meta.namespace, field_selector=f"metadata.name={meta.name}"):
            is_newer = self._store.assume(live)
            if live.metadata.uid == meta.uid and live.metadata.deletion_timestamp is None:
                return RequeueAfter(0.0) if is_newer else None
        log.info("the job is being deleted: children are not recreated")
        return DONE

    def _finds_pods(self, job: ObjectT, plan: Plan, creates: Sequence[Create]) -> bool:
        """Asks the API server for the pods of Jobs that somebody else has deleted, before others take their place.

        The watch of pods may be behind that of Jobs, and no pod may run beside one that a deleted Job has left. Returns
        whether any was found that the cache does not have, or not so.
        """
        names = [create.name for create in creates if create.resource == JOBS]
        if not names:
            return False
        selector = f"{RUNTIME_ID}={plan.identity.runtime_id}"
        if len(names) <= _MAX_NAMES:
            selector = f"{POD_JOB_NAME} in ({','.join(names)})"
        return self._writer.read_again(PODS, job.metadata.namespace, f"{CHILD_SELECTOR},{selector}")

    def _must_yield(self, record: _JobRecord[ObjectT]) -> bool:
        """Reports whether other jobs come before this one's status: once, after creates without faults.

        They also come before the other writes of a job that has written for long enough.
        """
        (*earlier, result) = record.unreported
        if result.is_partial:
            return not result.faults
        return not earlier and bool(result.created) and not result.faults and self._is_busy()

    def _write_status(self, job: ObjectT, record: _JobRecord[ObjectT], result: StatusResult) -> float | None:
        """Writes the status if it differs, and emits its events.

        Returns for how many seconds the write is still delayed; None if it is not. If a pending status is dropped,
        another sync is due at once, since this one has planned its actions with that status.
        """
        change = self._kind.status_change(job, result.status)
        change_of_record = self._record.record_change(job, result.status) if self._record is not None else None
        if change is None and change_of_record is None:
            return 0.0 if record.debounce.drop() else None
        before = self._kind.work_of(job)
        delay_seconds = record.debounce.remaining_seconds(before, result, self._clock.monotonic())
        if delay_seconds > 0:
            return delay_seconds
        meta = job.metadata
        if change_of_record is not None:
            recorded = self._client.patch(meta.namespace, meta.name, change_of_record)
            self._store.assume(recorded)
            change = self._kind.status_change(recorded, result.status)
        if change is not None:
            self._store.assume(self._client.patch(meta.namespace, meta.name, change, subresource="status"))
        record.debounce.record_write(before, result)
        observe_status(self._observer, self._kind.resource.kind, before, result.status, self._clock.now())
        events = self._events.events(job, result.status, result.events) if self._events is not None else result.events
        self._reporter.report_status(job, events)
        return None

    def _write_spec(self, job: ObjectT, result: StatusResult) -> None:
        """Suspends or scales the job, as its recorded status requires."""
        if result.suspend_job:
            self._suspend(job)
        if result.scale_to is not None:
            self._scale(job, result.scale_to)

    def _suspend(self, job: ObjectT) -> None:
        """Sets spec.suspend, also if other fields have changed since the job was read."""
        meta = job.metadata
        body = {"metadata": {"uid": meta.uid}, "spec": {"suspend": True}}
        self._store.assume(self._client.patch(meta.namespace, meta.name, body))
        log.info("job suspended")

    def _scale(self, job: ObjectT, workers: int) -> None:
        """Sets the number of workers, unless the spec has changed since it was read: the number may be outdated."""
        meta, cached = job.metadata, self._store.get(key_of(job))
        if self._scales is None or cached is None or cached.metadata.generation != meta.generation:
            return
        body = {"metadata": {"resourceVersion": cached.metadata.resource_version}, "spec": {"replicas": workers}}
        try:
            self._scales.patch(meta.namespace, meta.name, body, subresource="scale")
        except ApiError as error:
            if not error.is_conflict:
                raise
            log.info("job not scaled: another writer was first", workers=workers)
        else:
            log.info("job scaled", workers=workers)

    def _report_pods(
        self, job: ObjectT, work: TrainingJob, record: _JobRecord[ObjectT], plan: Plan, observed: ObservedState
    ) -> None:
        if self._events is None or work.status.phase == PHASE_CLEAN_UP or plan.policy.suspend:
            return
        pods = [pod for of_name in observed.pods.values() for pod in of_name]
        events = self._events.pod_events(job, pods)
        self._reporter.report_pods(job, record.told.new(events, {pod.metadata.uid for pod in pods}))

    def _report_writes(self, job: ObjectT, record: _JobRecord[ObjectT]) -> None:
        results, record.unreported = record.unreported, []
        for result in results:
            self._reporter.report_writes(job, result)

    def _record_of(self, key: str, job: ObjectT) -> _JobRecord[ObjectT]:
        """Returns the job's record. Each generation is validated once."""
        known = self._records.get(key)
        if known is None or known.job.metadata.uid != job.metadata.uid:
            status = self._kind.work_of(job).status
            was_reverted = conditions.has_true(status.conditions, conditions.CHANGES_REVERTED)
            debounce = StatusDebounce(self._kind.status_debounce_seconds)
            changes = ChangeTracker(was_reverted=was_reverted)
            told = ToldEvents(is_known=bool(status.phase))
            record = _JobRecord(job, self._kind.problem(job, None), debounce, changes, told)
            # The identity is written before the first child, the status after it.
            has_identity = self._identity is not None and self._identity.has_identity(job)
            record.child_count = None if status.phase or has_identity else 0
        elif known.job.metadata.generation == job.metadata.generation:
            return known
        else:
            last_valid = known.job if known.problem is None else None
            problem = self._kind.problem(job, last_valid, has_children=known.has_children)
            record = replace(known, job=job, problem=problem, plan=None)
            record.changes.retry_now()
        self._records[key] = record
        return record

    def _forget(self, key: str) -> None:
        self._records.pop(key, None)
        if self._logs is not None:
            self._logs.forget_logs(key)

    def _forget_deleted(self, key: str) -> None:
        self._forget(key)
        self._deletions.pop(key, None)


def _earliest(first: float | None, second: float | None) -> float | None:
    return min((seconds for seconds in (first, second) if seconds is not None), default=None)
