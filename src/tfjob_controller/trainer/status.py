"""What the controller says of a job: the next status, the events to emit, and when to look again.

Contract with the engine: call `next_status` after the writes of a sync, with what the caches then hold. If the answer's
status `is` the job's own, nothing is written. Emit the events only after the status write succeeded. Look again after
`wake_after_seconds`, even if nothing happens; 0 says that there are actions that only waited for this status to be on
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.tfjob import BY_RESTART, WORKER, TFJob
from tfjob_controller.api.trainingstatus import Progress, ReplicaStatus, TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.cleanup import is_clean, seconds_to_live
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.elastic import fitted
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit
from tfjob_controller.trainer.gang import gate_of, living
from tfjob_controller.trainer.gangwait import Wait, wait_of
from tfjob_controller.trainer.labels import replica_type_labels, selector_string
from tfjob_controller.trainer.moments import to_text
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.plan import Plan, Role
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.progress import has_last_words, is_unread, next_progress
from tfjob_controller.trainer.replicas import View, classify, seconds_to_next_look
from tfjob_controller.trainer.resizing import Look, Resizing, resizing_of
from tfjob_controller.trainer.restarts import next_restart_counts, restarted_ids
from tfjob_controller.trainer.training import Verdict, judge, seconds_to_deadline

CREATING = "Creating"
RUNNING = "Running"
CLEAN_UP = "CleanUp"
DONE = "Done"
FAILED = "Failed"

# A job that has ended says so once the logs of its workers are read; whoever reads them tells, this is for the worst.
_UNREAD_SECONDS = 2.0
# How many replicas a sentence names.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class StatusResult:
    """`delete_job`: the job's time to live is over, delete it (Background, with its UID as precondition).

    `is_urgent`: it holds what nobody can find out again, so the write must not wait. `suspend_job`: set its
    spec.suspend, once this status is on record; `scale_to`: likewise its workers, if nobody has changed its spec since.
    """

    status: TrainingStatus
    events: tuple[Emit, ...] = ()
    wake_after_seconds: float | None = None
    delete_job: bool = False
    suspend_job: bool = False
    scale_to: int | None = None
    is_urgent: bool = False


def is_finished(status: TrainingStatus) -> bool:
    """Phase Done or Failed: nothing will ever be written again, but for the time to live."""
    return status.phase in (DONE, FAILED)


def next_status(
    job: TFJob, plan: Plan, observed: Observed, now: datetime, obstacles: Sequence[Obstacle] = ()
) -> StatusResult:
    """The status that follows from what is observed. A fixed point: given its own answer, it returns that object."""
    if is_finished(job.status):
        return finished_status(job, now)
    plan = fitted(plan, observed, job.status)
    views = classify(plan, living(plan, observed), job.status.succeeded_indexes, now, job.status.start_time)
    if job.status.phase == CLEAN_UP:
        return _cleaned(job, plan, observed, views, now)
    return _active(job, plan, observed, views, now, obstacles)


def invalid_status(job: TFJob, why: str, now: datetime) -> StatusResult:
    """The status of a job whose spec is refused: Failed at once, `invalid job spec: <why>`, one Warning event."""
    if is_finished(job.status):
        return finished_status(job, now)
    if job.status.phase == CLEAN_UP:
        return _finished(job, now)
    text = to_text(now)
    words = f"invalid job spec: {why}"
    said = Conditions(job.status.conditions, text, job.metadata.generation)
    said.clear(conditions.RUNNING, reasons.INVALID_SPEC, words)
    said.set(conditions.FAILED, True, reasons.INVALID_SPEC, words)
    status = replace(
        job.status,
        phase=FAILED,
        state=replicas.FAILED,
        reason=words,
        conditions=said.all(),
        observed_generation=job.metadata.generation,
        completion_time=text,
    )
    return _result(job, status, [Emit(WARNING, reasons.INVALID_SPEC, words)], now)


def finished_status(job: TFJob, now: datetime) -> StatusResult:
    """For a finished job, without a plan: its own status, and when or whether its time to live is over."""
    left = seconds_to_live(job, now)
    if left is None:
        return StatusResult(job.status)
    return StatusResult(job.status, wake_after_seconds=max(0.0, left), delete_job=left <= 0)


def _result(job: TFJob, status: TrainingStatus, events: list[Emit], now: datetime) -> StatusResult:
    """For a job that has just finished: its time to live begins."""
    left = seconds_to_live(replace(job, status=status), now)
    return StatusResult(status, tuple(events), left)


def _cleaned(job: TFJob, plan: Plan, observed: Observed, views: Sequence[View], now: datetime) -> StatusResult:
    """The verdict stands; all that is left is to see the pods go."""
    if not is_clean(plan, observed, views):
        return StatusResult(job.status)
    return _finished(job, now)


def _finished(job: TFJob, now: datetime) -> StatusResult:
    status = replace(job.status, phase=_last_phase(job.status.state == replicas.SUCCEEDED))
    return _result(job, status, [_phase_event(status)], now)


def _last_phase(succeeded: bool) -> str:
    return DONE if succeeded else FAILED


def _phase_event(status: TrainingStatus) -> Emit:
    kind = WARNING if status.state == replicas.FAILED else NORMAL
    note = f"Job is in phase {status.phase}"
    return Emit(kind, status.phase, f"{note}: {status.reason}" if status.reason else note)


def _active(
    job: TFJob,
    plan: Plan,
    observed: Observed,
    views: Sequence[View],
    now: datetime,
    obstacles: Sequence[Obstacle],
) -> StatusResult:
    """The job goes on, or ends here."""
    old = job.status
    gate = gate_of(plan, observed, views)
    wait = wait_of(plan, gate, observed, old, now)
    progress = next_progress(plan, observed, old.progress)
    counted = _counted(job, plan, views, to_text(now), progress, starts=gate is None or gate.is_open)
    said = Conditions(old.conditions, to_text(now), job.metadata.generation)
    said.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has seen the job")
    if wait is not None and not plan.policy.suspend:
        said.set(conditions.SCHEDULED, wait.scheduled, wait.reason, wait.message)
    verdict = judge(plan, views, obstacles, counted.restarts, old.start_time, now) or _waited_too_long(plan, wait)
    resizing = Resizing(old.scaling)
    if verdict is None:
        resizing = resizing_of(Look(job, plan, observed, views, gate), said)
        counted = replace(counted, scaling=resizing.scaling)
    elif is_unread(plan, observed):
        return StatusResult(old, wake_after_seconds=_UNREAD_SECONDS)
    if verdict is not None:
        status = _ended(counted, verdict, said, to_text(now), is_clean(plan, observed, views))
    elif plan.policy.suspend:
        status = _suspended(counted, said)
    else:
        status = _going_on(counted, views, obstacles, said, wait, is_waiting=gate is not None and not gate.is_open)
    suspends = wait is not None and wait.suspends and verdict is None and not plan.policy.suspend
    if status == old:
        wake_after_seconds = _wake_after(plan, views, old, now, wait)
        return StatusResult(
            old, wake_after_seconds=wake_after_seconds, suspend_job=suspends, scale_to=resizing.scale_to
        )
    events = (*_events(old, status, views), *resizing.events)
    if is_finished(status):
        return _result(job, status, list(events), now)
    follows = (old.scaling is not None or plan.resize == BY_RESTART) and status.scaling != old.scaling
    at_once = status.phase == CLEAN_UP or any(view.must_redo for view in views) or follows
    wake_after_seconds = 0.0 if at_once else _wake_after(plan, views, status, now, wait)
    return StatusResult(
        status,
        events,
        wake_after_seconds,
        suspend_job=suspends,
        scale_to=resizing.scale_to,
        is_urgent=has_last_words(observed, old.progress, progress),
    )


def _waited_too_long(plan: Plan, wait: Wait | None) -> Verdict | None:
    return wait.verdict if wait is not None and not plan.policy.suspend else None


def _counted(
    job: TFJob, plan: Plan, views: Sequence[View], now_text: str, progress: Progress | None, *, starts: bool
) -> TrainingStatus:
    """The old status with all that is simply counted brought up to date."""
    old = job.status
    restart_counts = next_restart_counts(views, old.restart_counts)
    return replace(
        old,
        observed_generation=job.metadata.generation,
        start_time=(old.start_time or now_text) if starts and not plan.policy.suspend else None,
        replica_statuses=tuple(_role_status(role, views) for role in plan.roles),
        ready={role.name: _ready(role, views) for role in plan.roles},
        progress=progress,
        succeeded_indexes=_succeeded(old.succeeded_indexes, views),
        restart_counts=restart_counts,
        restarts=sum(restart_counts.values()),
        worker_replicas=sum(view.job is not None and view.replica.role.replica_type == WORKER for view in views),
        worker_selector=_worker_selector(plan),
    )


def _role_status(role: Role, views: Sequence[View]) -> ReplicaStatus:
    states: dict[str, int] = {}
    for view in views:
        if view.replica.role is role:
            states[view.state] = states.get(view.state, 0) + 1
    return ReplicaStatus(role.replica_type, _role_state(states), states)


def _role_state(states: dict[str, int]) -> str:
    """Failed if any index failed, else Running if any runs, else Succeeded if all did, else Unknown."""
    if replicas.FAILED in states:
        return replicas.FAILED
    if replicas.RUNNING in states:
        return replicas.RUNNING
    return replicas.SUCCEEDED if list(states) == [replicas.SUCCEEDED] else replicas.UNKNOWN


def _ready(role: Role, views: Sequence[View]) -> str:
    """`1/2`: a replica that succeeded needs to be no more than that."""
    ready = sum(view.is_ready or view.state == replicas.SUCCEEDED for view in views if view.replica.role is role)
    return f"{ready}/{role.replicas}"


def _succeeded(old: tuple[str, ...], views: Sequence[View]) -> tuple[str, ...]:
    """What succeeded once is remembered for ever, also when the replica is not wanted any more."""
    new = {view.replica.id for view in views if view.state == replicas.SUCCEEDED}.difference(old)
    return tuple(sorted(new.union(old), key=_natural)) if new else old


def _natural(replica_id: str) -> tuple[str, int, str]:
    role, _, index = replica_id.rpartition("-")
    return role, int(index) if index.isdecimal() else 0, index


def _worker_selector(plan: Plan) -> str:
    if not any(role.replica_type == WORKER for role in plan.roles):
        return ""
    return selector_string(replica_type_labels(plan.job_name, plan.runtime_id, WORKER))


def _ended(
    counted: TrainingStatus, verdict: Verdict, said: Conditions, now_text: str, nothing_to_clean: bool
) -> TrainingStatus:
    """The phase CleanUp is passed over where nothing is to be cleaned: one write less."""
    said.clear(conditions.RUNNING, verdict.reason, verdict.words)
    said.clear(conditions.RESTARTING, verdict.reason, verdict.words)
    if said.is_true(conditions.RESIZING):
        said.set(conditions.RESIZING, False, verdict.reason, verdict.words)
    said.set(conditions.SUCCEEDED if verdict.succeeded else conditions.FAILED, True, verdict.reason, verdict.words)
    return replace(
        counted,
        phase=_last_phase(verdict.succeeded) if nothing_to_clean else CLEAN_UP,
        state=replicas.SUCCEEDED if verdict.succeeded else replicas.FAILED,
        reason=verdict.words,
        completion_time=now_text,
        conditions=said.all(),
    )


def _suspended(counted: TrainingStatus, said: Conditions) -> TrainingStatus:
    words = "Suspended: spec.suspend is true"
    said.clear(conditions.RUNNING, reasons.SUSPENDED, words)
    said.clear(conditions.RESTARTING, reasons.SUSPENDED, words)
    said.set(conditions.SUSPENDED, True, reasons.SUSPENDED, words)
    scheduled = said.find(conditions.SCHEDULED)
    if scheduled is not None and scheduled.reason not in (reasons.TIMED_OUT, reasons.GANG_SCHEDULING_OFF):
        said.set(conditions.SCHEDULED, False, reasons.NOT_WAITING, words)
    return replace(counted, phase=CREATING, state=replicas.UNKNOWN, reason=words, conditions=said.all())


def _going_on(
    counted: TrainingStatus,
    views: Sequence[View],
    obstacles: Sequence[Obstacle],
    said: Conditions,
    wait: Wait | None,
    *,
    is_waiting: bool,
) -> TrainingStatus:
    chief = views[0]
    said.clear(conditions.SUSPENDED, reasons.RESUMED, "spec.suspend is false")
    if chief.is_up:
        said.set(conditions.RUNNING, True, reasons.CHIEF_RUNNING, f"{chief.replica.id} runs")
    else:
        said.clear(conditions.RUNNING, reasons.CHIEF_NOT_RUNNING, f"{chief.replica.id} does not run")
    _say_restarting(views, said)
    return replace(
        counted,
        phase=RUNNING if (chief.is_up or counted.phase == RUNNING) and not is_waiting else CREATING,
        state=chief.state,
        reason="; ".join(_why_waiting(views, obstacles, wait)),
        conditions=said.all(),
    )


def _say_restarting(views: Sequence[View], said: Conditions) -> None:
    restarting = [view.replica.id for view in views if view.is_restarting]
    if restarting:
        said.set(conditions.RESTARTING, True, reasons.REPLICAS_RESTARTING, f"{_listed(restarting)} to be started again")
    else:
        said.clear(conditions.RESTARTING, reasons.NONE_RESTARTING, "No replica waits to be started again")


def _why_waiting(views: Sequence[View], obstacles: Sequence[Obstacle], wait: Wait | None) -> Iterator[str]:
    """Passing obstacles, then what the job as a whole or else the first replica waits for beyond its turn."""
    yield from dict.fromkeys(obstacle.words for obstacle in obstacles)
    if wait is not None and wait.words:
        yield shortened(wait.words)
        return
    waiting = [view for view in views if view.pending]
    if waiting:
        more = f" (and {len(waiting) - 1} more wait)" if len(waiting) > 1 else ""
        yield f"{waiting[0].replica.id}: {waiting[0].pending}{more}"


def _listed(ids: Sequence[str]) -> str:
    """A few by name, the rest as a number."""
    shown = ", ".join(ids[:_SHOWN])
    return f"{shown} and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else shown


def _events(old: TrainingStatus, new: TrainingStatus, views: Sequence[View]) -> Iterator[Emit]:
    if new.restarts > old.restarts:
        ids = _listed(restarted_ids(views, old.restart_counts))
        yield Emit(WARNING, reasons.RESTARTED, f"Restarted {ids}: {new.restarts} restarts so far")
    was_suspended = conditions.has_true(old.conditions, conditions.SUSPENDED)
    if was_suspended != conditions.has_true(new.conditions, conditions.SUSPENDED):
        yield Emit(NORMAL, reasons.RESUMED if was_suspended else reasons.SUSPENDED, _suspension_note(was_suspended))
    if new.progress is not None and new.progress.ignored and not (old.progress and old.progress.ignored):
        yield Emit(WARNING, reasons.PROGRESS_IGNORED, f"Progress is not counted: {new.progress.ignored}")
    if new.phase not in (CLEAN_UP, DONE, FAILED):
        yield from _scheduling_event(old, new)
    if new.phase != old.phase:
        yield _phase_event(new)


_SCHEDULING_EVENTS = {
    reasons.GANG_ADMITTED: NORMAL,
    reasons.WAITING_FOR_CAPACITY: NORMAL,
    reasons.EXCEEDS_CLUSTER_CAPACITY: WARNING,
    reasons.TIMED_OUT: WARNING,
    reasons.GANG_SCHEDULING_OFF: WARNING,
}


def _scheduling_event(old: TrainingStatus, new: TrainingStatus) -> Iterator[Emit]:
    """One for each change of what stands in the way, not of how much of it."""
    before, now = (conditions.find(each.conditions, conditions.SCHEDULED) for each in (old, new))
    if now is not None and (before is None or before.reason != now.reason) and now.reason in _SCHEDULING_EVENTS:
        yield Emit(_SCHEDULING_EVENTS[now.reason], now.reason, now.message)


def _suspension_note(was_suspended: bool) -> str:
    return "Job is resumed" if was_suspended else "Job is suspended: its pods are stopped"


def _wake_after(
    plan: Plan, views: Sequence[View], status: TrainingStatus, now: datetime, wait: Wait | None
) -> float | None:
    times = (
        seconds_to_deadline(plan, status.start_time, now),
        seconds_to_next_look(views, status.start_time, now),
        wait.seconds_left if wait is not None and not plan.policy.suspend else None,
    )
    return min((max(0.0, each) for each in times if each is not None), default=None)
