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
from tfjob_controller.trainer.emit import WARNING, Emit
from tfjob_controller.trainer.generations import is_of_generation, seconds_to_lost
from tfjob_controller.trainer.observed import Obstacle
from tfjob_controller.trainer.phases import CLEAN_UP, CREATING, FAILED, is_finished
from tfjob_controller.trainer.progress import has_last_words, is_unread
from tfjob_controller.trainer.replicas import seconds_to_next_look
from tfjob_controller.trainer.resizing import Resizing, resizing_of
from tfjob_controller.trainer.setbackoff import seconds_to_start
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.trainer.statusevents import events_of, phase_event
from tfjob_controller.trainer.statusfigures import counted, restarted, untold_successes
from tfjob_controller.trainer.statuswords import PENDING, ended, going_on, last_phase, suspended
from tfjob_controller.trainer.training import refused, seconds_to_deadline
from tfjob_controller.trainer.work import Work
from tfjob_controller.util.timestamps import format_time

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


def next_status(state: JobState, obstacles: Sequence[Obstacle] = ()) -> StatusResult:
    """The status that follows from the state. A fixed point: given its own answer, it returns that object."""
    job = state.job
    if is_finished(job.status):
        return finished_status(job, state.now)
    if job.status.phase == CLEAN_UP:
        # The verdict stands; all that is left is to see the pods go.
        is_over = is_clean(state.plan, state.observed, state.views)
        return _finished(job, state.now) if is_over else StatusResult(job.status)
    return _active(state, obstacles)


def invalid_status(job: Work, why: str, now: datetime) -> StatusResult:
    """The status of a job whose spec is refused: Failed at once, `invalid job spec: <why>`, one Warning event."""
    if is_finished(job.status):
        return finished_status(job, now)
    if job.status.phase == CLEAN_UP:
        return _finished(job, now)
    text = format_time(now)
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
    said = Conditions(job.status.conditions, format_time(now), job.metadata.generation)
    said.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has seen the job")
    return said


def _active(state: JobState, obstacles: Sequence[Obstacle]) -> StatusResult:
    """The job goes on, or ends here."""
    plan, wait, old = state.plan, state.wait, state.status
    said = _seen(state.job, state.now)
    if wait is not None and not plan.is_suspended:
        said.set(conditions.SCHEDULED, wait.scheduled, wait.reason, wait.message)
    figures = counted(state)
    completion = state.completion or refused(obstacles)
    if completion is not None:
        if state.observed.is_unread or is_unread(plan, state.observed):
            return StatusResult(old, wake_after_seconds=_UNREAD_SECONDS)
        nothing_to_clean = is_clean(plan, state.observed, state.views)
        status = ended(figures, completion, said, format_time(state.now), nothing_to_clean=nothing_to_clean)
        return _told(state, status, Resizing(old.scaling))
    resizing = resizing_of(state, said)
    figures = restarted(state, replace(figures, scaling=resizing.scaling))
    if plan.is_suspended:
        return _told(state, suspended(figures, said), resizing)
    status = going_on(state, figures, said, obstacles)
    return _told(state, status, resizing, suspends=wait is not None and wait.suspends)


def _told(state: JobState, status: TrainingStatus, resizing: Resizing, *, suspends: bool = False) -> StatusResult:
    """The status with all that follows from it."""
    old = state.status
    if status == old:
        wake_after_seconds = _wake_after(state, old)
        return StatusResult(
            old, wake_after_seconds=wake_after_seconds, suspend_job=suspends, scale_to=resizing.scale_to
        )
    events = (*events_of(state, status), *resizing.events)
    if is_finished(status):
        return _result(state.job, status, events, state.now)
    is_last_sight = _is_last_sight(state)
    return StatusResult(
        status,
        events,
        0.0 if is_last_sight or _waits_for_the_record(state, status) else _wake_after(state, status),
        suspend_job=suspends,
        scale_to=resizing.scale_to,
        is_urgent=has_last_words(state.observed, old.progress, status.progress) or is_last_sight,
    )


def _waits_for_the_record(state: JobState, status: TrainingStatus) -> bool:
    """Are there actions that may follow as soon as this status is written?"""
    plan, old = state.plan, state.status
    if status.phase == CLEAN_UP or any(view.must_redo for view in state.views):
        return True
    if plan.restarts_together and status.restarts != old.restarts:
        return True
    return (old.scaling is not None or plan.resize == BY_RESTART) and status.scaling != old.scaling


def _is_last_sight(state: JobState) -> bool:
    """Has a replica succeeded whose Job is gone, or goes once that is on record?"""
    stale = {job.metadata.name for job in state.turnover.stale}
    return any(
        view.job is None or view.replica.name in stale or not is_of_generation(state.plan, view.job)
        for view in untold_successes(state.views, state.status)
    )


def _wake_after(state: JobState, status: TrainingStatus) -> float | None:
    plan, views, wait, now = state.plan, state.views, state.wait, state.now
    times = (
        seconds_to_deadline(plan, status.start_time, now),
        seconds_to_next_look(views, status.start_time, now),
        seconds_to_lost(plan, state.observed, now),
        seconds_to_start(plan, status, now) or None,
        seconds_to_verdict(views, now),
        seconds_to_wait(plan, state.unfinished, now),
        wait.seconds_left if wait is not None and not plan.is_suspended else None,
    )
    return min((max(0.0, each) for each in times if each is not None), default=None)
