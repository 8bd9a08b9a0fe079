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
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.tfjob import BY_RESTART, WORKER
from tfjob_controller.api.trainingstatus import Progress, ReplicaStatus, TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.blame import seconds_to_verdict
from tfjob_controller.trainer.carriers import seconds_to_wait
from tfjob_controller.trainer.cleanup import is_clean, seconds_to_live
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.elastic import fitted
from tfjob_controller.trainer.emit import WARNING, Emit
from tfjob_controller.trainer.gang import gate_of
from tfjob_controller.trainer.gangwait import Wait, wait_of
from tfjob_controller.trainer.generations import seconds_to_lost, without_lost
from tfjob_controller.trainer.groupwait import group_wait
from tfjob_controller.trainer.labels import replica_type_labels, selector_string
from tfjob_controller.trainer.moments import to_text
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.phases import CLEAN_UP, CREATING, DONE, FAILED, RUNNING, is_finished
from tfjob_controller.trainer.plan import Plan, Role
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.progress import has_last_words, is_unread, next_progress
from tfjob_controller.trainer.replicas import View, seconds_to_next_look
from tfjob_controller.trainer.resizing import Look, Resizing, resizing_of
from tfjob_controller.trainer.restarts import next_restart_counts
from tfjob_controller.trainer.setbackoff import seconds_to_start
from tfjob_controller.trainer.statusevents import events_of, listed, phase_event
from tfjob_controller.trainer.steps import Step, due_step
from tfjob_controller.trainer.training import Verdict, judge, of_steps_to_do, seconds_to_deadline, to_restart
from tfjob_controller.trainer.views import views_of
from tfjob_controller.trainer.work import Work

# A job that has ended says so once the logs of its workers are read; whoever reads them tells, this is for the worst.
_UNREAD_SECONDS = 2.0


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


def next_status(
    job: Work, plan: Plan, observed: Observed, now: datetime, obstacles: Sequence[Obstacle] = ()
) -> StatusResult:
    """The status that follows from what is observed. A fixed point: given its own answer, it returns that object."""
    if is_finished(job.status):
        return finished_status(job, now)
    plan = fitted(plan, observed, job.status)
    views = views_of(plan, observed, job.status, now)
    if job.status.phase == CLEAN_UP:
        return _cleaned(job, plan, observed, views, now)
    return _active(job, plan, observed, views, now, obstacles)


def invalid_status(job: Work, why: str, now: datetime) -> StatusResult:
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


def waiting_status(job: Work, why: str, now: datetime) -> StatusResult:
    """Of a job that cannot be planned yet."""
    said = Conditions(job.status.conditions, to_text(now), job.metadata.generation)
    said.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has seen the job")
    status = replace(
        job.status,
        phase=job.status.phase or CREATING,
        state=job.status.state or replicas.UNKNOWN,
        reason=why,
        conditions=said.all(),
        observed_generation=job.metadata.generation,
    )
    return StatusResult(job.status if status == job.status else status)


def finished_status(job: Work, now: datetime) -> StatusResult:
    """For a finished job, without a plan: its own status, and when or whether its time to live is over."""
    left = seconds_to_live(job.ttl_seconds_after_finished, job.status.completion_time, now)
    if left is None:
        return StatusResult(job.status)
    return StatusResult(job.status, wake_after_seconds=max(0.0, left), delete_job=left <= 0)


def _result(job: Work, status: TrainingStatus, events: list[Emit], now: datetime) -> StatusResult:
    """For a job that has just finished: its time to live begins."""
    left = seconds_to_live(job.ttl_seconds_after_finished, status.completion_time, now)
    return StatusResult(status, tuple(events), left)


def _cleaned(job: Work, plan: Plan, observed: Observed, views: Sequence[View], now: datetime) -> StatusResult:
    """The verdict stands; all that is left is to see the pods go."""
    if not is_clean(plan, observed, views):
        return StatusResult(job.status)
    return _finished(job, now)


def _finished(job: Work, now: datetime) -> StatusResult:
    status = replace(job.status, phase=_last_phase(job.status.state == replicas.SUCCEEDED))
    return _result(job, status, [phase_event(status)], now)


def _last_phase(succeeded: bool) -> str:
    return DONE if succeeded else FAILED


def _active(
    job: Work,
    plan: Plan,
    observed: Observed,
    views: Sequence[View],
    now: datetime,
    obstacles: Sequence[Obstacle],
) -> StatusResult:
    """The job goes on, or ends here."""
    old = job.status
    step = due_step(plan, views, without_lost(plan, observed, now))
    gate = gate_of(step.plan, step.observed, step.views)
    wait = wait_of(step.plan, gate, step.observed, old, now) or group_wait(plan, step, old, now)
    progress = next_progress(plan, observed, old.progress)
    starts = gate.is_open if gate is not None else wait is None or wait.scheduled or step.plan.gang_refused
    starts = starts or not step.is_first
    counted = _counted(job, plan, views, to_text(now), progress, starts=starts)
    said = Conditions(old.conditions, to_text(now), job.metadata.generation)
    said.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has seen the job")
    if wait is not None and not plan.is_suspended:
        said.set(conditions.SCHEDULED, wait.scheduled, wait.reason, wait.message)
    verdict = judge(plan, views, obstacles, counted.restarts, old.start_time, now) or _waited_too_long(plan, wait)
    resizing = Resizing(old.scaling)
    if verdict is None:
        resizing = resizing_of(Look(old, plan, observed, views, gate), said)
        counted = _restarted(plan, views, replace(counted, scaling=resizing.scaling))
    elif observed.is_unread or is_unread(plan, observed):
        return StatusResult(old, wake_after_seconds=_UNREAD_SECONDS)
    if verdict is not None:
        status = _ended(counted, verdict, said, to_text(now), is_clean(plan, observed, views))
    elif plan.is_suspended:
        status = _suspended(counted, said)
    else:
        is_waiting = plan.is_held or (gate is not None and not gate.is_open)
        status = _going_on(plan, counted, views, step, said, is_waiting=is_waiting)
        status = replace(status, reason="; ".join(_why_waiting(step, obstacles, wait)))
    suspends = wait is not None and wait.suspends and verdict is None and not plan.is_suspended
    if status == old:
        wake_after_seconds = _wake_after(plan, views, observed, old, now, wait)
        return StatusResult(
            old, wake_after_seconds=wake_after_seconds, suspend_job=suspends, scale_to=resizing.scale_to
        )
    events = (*events_of(plan, old, status, views), *resizing.events)
    if is_finished(status):
        return _result(job, status, list(events), now)
    follows = (old.scaling is not None or plan.resize == BY_RESTART) and status.scaling != old.scaling
    follows = follows or (plan.restarts_together and status.restarts != old.restarts)
    at_once = status.phase == CLEAN_UP or any(view.must_redo for view in views) or follows
    wake_after_seconds = 0.0 if at_once else _wake_after(plan, views, observed, status, now, wait)
    return StatusResult(
        status,
        events,
        wake_after_seconds,
        suspend_job=suspends,
        scale_to=resizing.scale_to,
        is_urgent=has_last_words(observed, old.progress, progress),
    )


def _waited_too_long(plan: Plan, wait: Wait | None) -> Verdict | None:
    return wait.verdict if wait is not None and not plan.is_suspended else None


def _counted(
    job: Work, plan: Plan, views: Sequence[View], now_text: str, progress: Progress | None, *, starts: bool
) -> TrainingStatus:
    """The old status with all that is simply counted brought up to date."""
    old = job.status
    alone = [view for view in views if not view.replica.role.restarts_together]
    restart_counts = next_restart_counts(alone, old.restart_counts)
    return replace(
        old,
        observed_generation=job.metadata.generation,
        start_time=(old.start_time or now_text) if starts and not plan.policy.suspend else None,
        **_by_role(plan, views),
        progress=progress,
        succeeded_indexes=_succeeded(old.succeeded_indexes, views),
        restart_counts=restart_counts,
        restarts=old.restarts if plan.restarts_together else sum(restart_counts.values()),
        worker_replicas=sum(view.job is not None and view.replica.role.replica_type == WORKER for view in views),
        worker_selector=_worker_selector(plan),
    )


def _by_role(plan: Plan, views: Sequence[View]) -> dict[str, Any]:
    """What the status says of each role."""
    states = tuple(_role_status(plan, role, views) for role in plan.roles)
    return {"replica_statuses": states, "ready": {role.name: _ready(role, views) for role in plan.roles}}


def _restarted(plan: Plan, views: Sequence[View], status: TrainingStatus) -> TrainingStatus:
    """Where all are started again: those who have succeeded are so, too, and nothing of the new set is there yet."""
    if not to_restart(plan, views):
        return status
    together = {view.replica.id for view in views if view.replica.role.restarts_together}
    kept = tuple(id_ for id_ in status.succeeded_indexes if id_ not in together)
    anew = [View(view.replica, replicas.RUNNING) if view.replica.id in together else view for view in views]
    return replace(status, restarts=status.restarts + 1, succeeded_indexes=kept, **_by_role(plan, anew))


def _role_status(plan: Plan, role: Role, views: Sequence[View]) -> ReplicaStatus:
    states: dict[str, int] = {}
    for view in views:
        if view.replica.role is role:
            state = _state_told(plan, view)
            states[state] = states.get(state, 0) + 1
    return ReplicaStatus(role.replica_type, role_state(states), states)


def _state_told(plan: Plan, view: View) -> str:
    """Where more than the chief counts, nothing runs that was not made yet."""
    return replicas.UNKNOWN if plan.needed and view.job is None and view.state == replicas.RUNNING else view.state


def role_state(states: dict[str, int]) -> str:
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
    return selector_string(replica_type_labels(dict(plan.labels), WORKER))


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
    plan: Plan, counted: TrainingStatus, views: Sequence[View], step: Step, said: Conditions, *, is_waiting: bool
) -> TrainingStatus:
    chief, runner = views[0], _runner(views[0], step)
    said.clear(conditions.SUSPENDED, reasons.RESUMED, "spec.suspend is false")
    if runner.is_up and not to_restart(plan, views):
        said.set(conditions.RUNNING, True, reasons.CHIEF_RUNNING, f"{runner.replica.id} runs")
    else:
        said.clear(conditions.RUNNING, reasons.CHIEF_NOT_RUNNING, f"{runner.replica.id} does not run")
    _say_restarting(plan, of_steps_to_do(plan, views), said)
    phase = RUNNING if (chief.is_up or counted.phase == RUNNING) and not is_waiting else CREATING
    return replace(counted, phase=phase, state=_state_of(plan, phase, chief), conditions=said.all())


def _runner(chief: View, step: Step) -> View:
    """Who says whether the job runs: the chief, and once that has succeeded whoever goes on beside it or after it."""
    if chief.state != replicas.SUCCEEDED:
        return chief
    return next((view for view in step.views if view.is_up), step.views[0])


def _state_of(plan: Plan, phase: str, chief: View) -> str:
    """The chief's, where it decides alone."""
    if not plan.needed:
        return chief.state
    return replicas.RUNNING if phase == RUNNING else replicas.UNKNOWN


def _say_restarting(plan: Plan, views: Sequence[View], said: Conditions) -> None:
    over = {view.replica.id for view in to_restart(plan, views)}
    restarting = [view.replica.id for view in views if view.is_restarting or view.replica.id in over]
    if restarting:
        words = f"{listed(restarting)} to be started again"
        # Of a set, each restart waits from its own time on, also where one follows on the other: see `setbackoff`.
        said.set(conditions.RESTARTING, True, reasons.REPLICAS_RESTARTING, words, anew=bool(over))
    elif not (plan.restarts_together and said.is_true(conditions.RESTARTING) and not _are_up_together(views)):
        said.clear(conditions.RESTARTING, reasons.NONE_RESTARTING, "No replica waits to be started again")


def _are_up_together(views: Sequence[View]) -> bool:
    together = [view for view in views if view.replica.role.restarts_together]
    return all(view.is_up or view.state == replicas.SUCCEEDED for view in together)


def _why_waiting(step: Step, obstacles: Sequence[Obstacle], wait: Wait | None) -> Iterator[str]:
    """Passing obstacles, then what the job as a whole or else the first replica waits for beyond its turn."""
    yield from dict.fromkeys(obstacle.words for obstacle in obstacles)
    if wait is not None and wait.words:
        yield shortened(wait.words)
        return
    waiting = [view for view in step.views if view.pending]
    if waiting:
        more = f" (and {len(waiting) - 1} more wait)" if len(waiting) > 1 else ""
        yield f"{waiting[0].replica.id}: {waiting[0].pending}{more}"


def _wake_after(
    plan: Plan, views: Sequence[View], observed: Observed, status: TrainingStatus, now: datetime, wait: Wait | None
) -> float | None:
    times = (
        seconds_to_deadline(plan, status.start_time, now),
        seconds_to_next_look(views, status.start_time, now),
        seconds_to_lost(plan, observed, now),
        seconds_to_start(plan, status, now) or None,
        seconds_to_verdict(views, now),
        seconds_to_wait(plan, of_steps_to_do(plan, views), now),
        wait.seconds_left if wait is not None and not plan.is_suspended else None,
    )
    return min((max(0.0, each) for each in times if each is not None), default=None)
