"""What the controller says of a job: the next status, the events to emit, and when to look again.

Contract with the engine: call `next_status` after the writes of a sync, with what the caches then hold. If the answer's
status `is` the job's own, nothing is written. Emit the events only after the status write succeeded. Look again after
`wake_after_seconds`, even if nothing happens; 0 says that there are actions that only waited for this status to be on
record.

Here is decided which status is due; `statusfigures` counts for it, `statuswords` says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.tfjob import BY_RESTART
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.blame import seconds_to_verdict
from tfjob_controller.trainer.carriers import seconds_to_wait
from tfjob_controller.trainer.cleanup import is_clean, seconds_to_live
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.elastic import fitted
from tfjob_controller.trainer.emit import WARNING, Emit
from tfjob_controller.trainer.gang import Gate, gate_of
from tfjob_controller.trainer.gangwait import Wait, wait_of
from tfjob_controller.trainer.generations import is_of_generation, seconds_to_lost, without_lost
from tfjob_controller.trainer.groupwait import group_wait
from tfjob_controller.trainer.moments import to_text
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.phases import CLEAN_UP, CREATING, FAILED, is_finished
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.progress import has_last_words, is_unread, next_progress
from tfjob_controller.trainer.replicas import View, seconds_to_next_look
from tfjob_controller.trainer.resizing import Look, Resizing, resizing_of
from tfjob_controller.trainer.setbackoff import seconds_to_start
from tfjob_controller.trainer.statusevents import events_of, phase_event
from tfjob_controller.trainer.statusfigures import counted, restarted, untold_successes
from tfjob_controller.trainer.statuswords import PENDING, ended, going_on, last_phase, suspended
from tfjob_controller.trainer.steps import Step, due_step
from tfjob_controller.trainer.training import Verdict, judge, of_steps_to_do, seconds_to_deadline
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
        # The verdict stands; all that is left is to see the pods go.
        return _finished(job, now) if is_clean(plan, observed, views) else StatusResult(job.status)
    return _active(_scene(job, plan, observed, views, now), obstacles)


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
        summary=replicas.FAILED,
        reason=words,
        conditions=said.all(),
        observed_generation=job.metadata.generation,
        completion_time=text,
    )
    return _result(job, status, (Emit(WARNING, reasons.INVALID_SPEC, words),), now)


def waiting_status(job: Work, why: str, now: datetime) -> StatusResult:
    """Of a job that cannot be planned yet."""
    said = _seen(job, now)
    status = replace(
        job.status,
        phase=job.status.phase or CREATING,
        state=job.status.state or replicas.UNKNOWN,
        summary=job.status.summary or PENDING,
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


def _result(job: Work, status: TrainingStatus, events: tuple[Emit, ...], now: datetime) -> StatusResult:
    """For a job that has just finished: its time to live begins."""
    left = seconds_to_live(job.ttl_seconds_after_finished, status.completion_time, now)
    return StatusResult(status, events, left)


def _finished(job: Work, now: datetime) -> StatusResult:
    status = replace(job.status, phase=last_phase(job.status.state == replicas.SUCCEEDED))
    return _result(job, status, (phase_event(status),), now)


def _seen(job: Work, now: datetime) -> Conditions:
    said = Conditions(job.status.conditions, to_text(now), job.metadata.generation)
    said.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has seen the job")
    return said


@dataclass(frozen=True, slots=True)
class _Scene:
    """A job that has not ended, and all that its next status follows from. `step`, `gate`, `wait`: of what is due."""

    job: Work
    plan: Plan
    observed: Observed
    views: Sequence[View]
    now: datetime
    step: Step
    gate: Gate | None
    wait: Wait | None

    @property
    def starts(self) -> bool:
        """Whether its time counts: it has room, or needs none."""
        if not self.step.is_first:
            return True
        if self.gate is not None:
            return self.gate.is_open
        return self.wait is None or self.wait.scheduled or self.step.plan.gang_refused

    @property
    def is_held_back(self) -> bool:
        return self.plan.is_held or (self.gate is not None and not self.gate.is_open)


def _scene(job: Work, plan: Plan, observed: Observed, views: Sequence[View], now: datetime) -> _Scene:
    step = due_step(plan, views, without_lost(plan, observed, now))
    gate = gate_of(step.plan, step.observed, step.views)
    wait = wait_of(step.plan, gate, step.observed, job.status, now) or group_wait(plan, step, job.status, now)
    return _Scene(job, plan, observed, views, now, step, gate, wait)


def _active(scene: _Scene, obstacles: Sequence[Obstacle]) -> StatusResult:
    """The job goes on, or ends here."""
    job, plan, observed, views, now = scene.job, scene.plan, scene.observed, scene.views, scene.now
    old, wait, said = job.status, scene.wait, _seen(job, now)
    if wait is not None and not plan.is_suspended:
        said.set(conditions.SCHEDULED, wait.scheduled, wait.reason, wait.message)
    progress = next_progress(plan, observed, old.progress)
    figures = counted(job, plan, views, to_text(now), progress, starts=scene.starts)
    verdict = judge(plan, views, obstacles, figures.restarts, old.start_time, now) or _waited_too_long(plan, wait)
    if verdict is not None:
        if observed.is_unread or is_unread(plan, observed):
            return StatusResult(old, wake_after_seconds=_UNREAD_SECONDS)
        status = ended(figures, verdict, said, to_text(now), nothing_to_clean=is_clean(plan, observed, views))
        return _told(scene, status, Resizing(old.scaling))
    resizing = resizing_of(Look(old, plan, observed, views, scene.gate), said)
    figures = restarted(plan, views, replace(figures, scaling=resizing.scaling))
    if plan.is_suspended:
        return _told(scene, suspended(figures, said), resizing)
    status = going_on(plan, figures, views, scene.step, said, obstacles, wait, is_waiting=scene.is_held_back)
    return _told(scene, status, resizing, suspends=wait is not None and wait.suspends)


def _waited_too_long(plan: Plan, wait: Wait | None) -> Verdict | None:
    return wait.verdict if wait is not None and not plan.is_suspended else None


def _told(scene: _Scene, status: TrainingStatus, resizing: Resizing, *, suspends: bool = False) -> StatusResult:
    """The status with all that follows from it."""
    job, plan, views, old = scene.job, scene.plan, scene.views, scene.job.status
    if status == old:
        wake_after_seconds = _wake_after(scene, old)
        return StatusResult(
            old, wake_after_seconds=wake_after_seconds, suspend_job=suspends, scale_to=resizing.scale_to
        )
    events = (*events_of(plan, old, status, views), *resizing.events)
    if is_finished(status):
        return _result(job, status, events, scene.now)
    is_last_sight = _is_last_sight(scene)
    return StatusResult(
        status,
        events,
        0.0 if is_last_sight or _waits_for_the_record(scene, status) else _wake_after(scene, status),
        suspend_job=suspends,
        scale_to=resizing.scale_to,
        is_urgent=has_last_words(scene.observed, old.progress, status.progress) or is_last_sight,
    )


def _waits_for_the_record(scene: _Scene, status: TrainingStatus) -> bool:
    """Are there actions that may follow as soon as this status is written?"""
    plan, old = scene.plan, scene.job.status
    if status.phase == CLEAN_UP or any(view.must_redo for view in scene.views):
        return True
    if plan.restarts_together and status.restarts != old.restarts:
        return True
    return (old.scaling is not None or plan.resize == BY_RESTART) and status.scaling != old.scaling


def _is_last_sight(scene: _Scene) -> bool:
    """Has a replica succeeded whose Job is gone, or goes once that is on record?"""
    stale = {job.metadata.name for job in scene.gate.stale} if scene.gate is not None else ()
    return any(
        view.job is None or view.replica.name in stale or not is_of_generation(scene.plan, view.job)
        for view in untold_successes(scene.views, scene.job.status)
    )


def _wake_after(scene: _Scene, status: TrainingStatus) -> float | None:
    plan, views, wait, now = scene.plan, scene.views, scene.wait, scene.now
    times = (
        seconds_to_deadline(plan, status.start_time, now),
        seconds_to_next_look(views, status.start_time, now),
        seconds_to_lost(plan, scene.observed, now),
        seconds_to_start(plan, status, now) or None,
        seconds_to_verdict(views, now),
        seconds_to_wait(plan, of_steps_to_do(plan, views), now),
        wait.seconds_left if wait is not None and not plan.is_suspended else None,
    )
    return min((max(0.0, each) for each in times if each is not None), default=None)
