"""Decides the next status of a job, the events to emit, and when to sync the job again.

Contract with the reconciler: call `next_status` after the writes of a sync, with the state that the caches then hold.
If the status of the result `is` that of the job, nothing is written. Emit the events only after the write of the status
has succeeded. Sync the job again after `wake_after_seconds`, even if nothing happens; 0 means that actions which waited
only for the write of this status are due now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import WARNING, Conditions, StatusEvent
from tfjob_controller.jobs.evaluation.cleanup import (
    SUSPENDED_AFTER_SECONDS,
    is_cleaned_up,
    seconds_until_stopped,
    ttl_seconds_left,
)
from tfjob_controller.jobs.evaluation.jobstate import JobState, had_all_jobs
from tfjob_controller.jobs.evaluation.silence import seconds_until_unexplained
from tfjob_controller.jobs.gang.waiting import GangWait, preemptor_of
from tfjob_controller.jobs.scaling.progress import has_last_words, is_unread
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import is_of_attempt, seconds_until_held_up, seconds_until_pod_lost
from tfjob_controller.jobs.state.completion import (
    refusal,
    seconds_until_config_timeout,
    seconds_until_deadline,
    seconds_until_join_timeout,
)
from tfjob_controller.jobs.state.observed import Obstacle
from tfjob_controller.jobs.state.replica_state import (
    ReplicaState,
    seconds_until_change,
    seconds_until_removal,
    unrecorded_successes,
)
from tfjob_controller.jobs.state.restarts import (
    next_attribution_seconds,
    seconds_until_replica_restart,
    seconds_until_restart,
)
from tfjob_controller.jobs.status.checkpoints import (
    checkpoint_events,
    next_checkpoint,
    restored_in,
    saving_states,
    seconds_until_saved,
    with_restored,
)
from tfjob_controller.jobs.status.counts import with_counts, with_restart
from tfjob_controller.jobs.status.resizing import ScalingDecision, decide_scaling
from tfjob_controller.jobs.status.summary import (
    PENDING,
    active_status,
    as_finished,
    as_reason,
    ended_status,
    join_ids,
    phase_event,
    reverted_event,
    set_reverted,
    status_events,
    suspended_status,
)
from tfjob_controller.jobs.trainingjob import (
    PHASE_CLEAN_UP,
    PHASE_CREATING,
    PHASE_FAILED,
    TrainingJob,
    TrainingStatus,
    is_finished,
)
from tfjob_controller.util.timestamps import format_time

# The status of a job that has ended waits for the logs of its workers. Their reader queues the job; this is a fallback.
_UNREAD_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class StatusResult:
    """The next status, and what the reconciler does after its write.

    `delete_job` requests the deletion of the job, whose time to live is over (Background, with its UID as
    precondition). `is_urgent` means that the status has facts that cannot be observed again, so that its write must
    not wait. Once the status is written, `suspend_job` requests that spec.suspend is set, and `scale_to` that the
    number of workers is, unless the spec has changed since it was read.
    """

    status: TrainingStatus
    events: tuple[StatusEvent, ...] = ()
    wake_after_seconds: float | None = None
    delete_job: bool = False
    suspend_job: bool = False
    scale_to: int | None = None
    is_urgent: bool = False


def next_status(job_state: JobState, obstacles: Sequence[Obstacle] = (), reverted: str = "") -> StatusResult:
    """Returns the status that follows from the state. Given the status that it returned, it returns the same object.

    `reverted` names the changes of children that another client keeps reverting; empty if none.
    """
    job = job_state.job
    if is_finished(job.status):
        return finished_status(job, job_state.now)
    if job.status.phase == PHASE_CLEAN_UP:
        # The job has ended, and only its clean-up is left.
        is_over = is_cleaned_up(job_state.plan, job_state.observed, job_state.replica_states, job_state.now)
        return _finished(job, job_state.now) if is_over else _cleaning_up(job_state, reverted)
    return _active(job_state, obstacles, reverted)


def invalid_status(job: TrainingJob, why: str, now: datetime) -> StatusResult:
    """Returns the status of a job with an invalid spec: Failed, `invalid job spec: <why>`, and one Warning event."""
    if is_finished(job.status):
        return finished_status(job, now)
    if job.status.phase == PHASE_CLEAN_UP:
        return _finished(job, now)
    text = format_time(now)
    message = f"invalid job spec: {why}"
    next_conditions = Conditions(job.status.conditions, text, job.metadata.generation)
    next_conditions.clear(conditions.RUNNING, reasons.INVALID_SPEC, message)
    next_conditions.set(conditions.FAILED, True, reasons.INVALID_SPEC, message)
    status = replace(
        job.status,
        phase=PHASE_FAILED,
        state=replica_state.FAILED,
        summary=replica_state.FAILED,
        reason=as_reason(message),
        conditions=next_conditions.all(),
        observed_generation=job.metadata.generation,
        completion_time=text,
    )
    return _result_of_end(job, status, (StatusEvent(WARNING, reasons.INVALID_SPEC, message),), now)


def waiting_status(job: TrainingJob, why: str, now: datetime) -> StatusResult:
    """Returns the status of a job that cannot be planned yet."""
    next_conditions = _conditions_when_observed(job, now)
    status = replace(
        job.status,
        phase=job.status.phase or PHASE_CREATING,
        state=job.status.state or replica_state.UNKNOWN,
        summary=job.status.summary or PENDING,
        reason=as_reason(why),
        conditions=next_conditions.all(),
        observed_generation=job.metadata.generation,
    )
    return StatusResult(job.status if status == job.status else status)


def finished_status(job: TrainingJob, now: datetime) -> StatusResult:
    """Returns the unchanged status of a finished job, and when its time to live is over."""
    left = ttl_seconds_left(job.ttl_seconds_after_finished, job.status.completion_time, now)
    if left is None:
        return StatusResult(job.status)
    return StatusResult(job.status, wake_after_seconds=max(0.0, left), delete_job=left <= 0)


def _result_of_end(
    job: TrainingJob, status: TrainingStatus, events: tuple[StatusEvent, ...], now: datetime
) -> StatusResult:
    """Returns the result for a job that has just finished, whose time to live begins."""
    left = ttl_seconds_left(job.ttl_seconds_after_finished, status.completion_time, now)
    return StatusResult(status, events, left)


def _finished(job: TrainingJob, now: datetime) -> StatusResult:
    status = as_finished(job.status)
    return _result_of_end(job, status, (phase_event(status),), now)


def _cleaning_up(job_state: JobState, reverted: str) -> StatusResult:
    """Returns the status of a job that has ended and is not cleaned up yet: what ended it stays its reason."""
    old = job_state.status
    next_conditions = Conditions(old.conditions, format_time(job_state.now), job_state.job.metadata.generation)
    set_reverted(next_conditions, reverted)
    status = _with_checkpoint(job_state, replace(old, conditions=next_conditions.all()))
    events = (*reverted_event(old, status), *checkpoint_events(old, status))
    moments = (
        _seconds_until_removal(job_state.replica_states, job_state.now),
        seconds_until_stopped(job_state.plan, job_state.observed, job_state.now),
    )
    wake_after_seconds = min((moment for moment in moments if moment is not None), default=None)
    if status == old:
        return StatusResult(old, wake_after_seconds=wake_after_seconds)
    return StatusResult(status, events, wake_after_seconds)


def _with_checkpoint(job_state: JobState, status: TrainingStatus) -> TrainingStatus:
    saver = job_state.plan.saving_replica
    if saver is None:
        return status
    observed, pods = job_state.observed, [state.pod for state in job_state.replica_states if state.replica is saver]
    restored = restored_in(pods[0]) if pods and pods[0] is not None else None
    checkpoint = with_restored(status.checkpoint, restored, observed.reported_steps)
    checkpoint = next_checkpoint(checkpoint, observed.checkpoint_lines, job_state.now)
    return status if checkpoint is status.checkpoint else replace(status, checkpoint=checkpoint)


def _conditions_when_observed(job: TrainingJob, now: datetime) -> Conditions:
    next_conditions = Conditions(job.status.conditions, format_time(now), job.metadata.generation)
    next_conditions.set(conditions.CREATED, True, reasons.JOB_CREATED, "The controller has processed the job")
    return next_conditions


def _active(job_state: JobState, obstacles: Sequence[Obstacle], reverted: str) -> StatusResult:
    """Returns the next status of a job that had not ended."""
    plan, wait, old = job_state.plan, job_state.wait, job_state.status
    next_conditions = _conditions_when_observed(job_state.job, job_state.now)
    set_reverted(next_conditions, reverted)
    if not plan.policy.is_suspended_by_user:
        next_conditions.clear(conditions.SUSPENDED, reasons.RESUMED, "spec.suspend is false")
        if wait is not None:
            next_conditions.set(conditions.SCHEDULED, wait.scheduled, wait.reason, wait.message)
            _set_preempted(job_state, wait, next_conditions)
    figures = _with_checkpoint(job_state, with_counts(job_state))
    completion = job_state.completion or refusal(obstacles)
    if completion is not None:
        saving = saving_states(job_state.replica_states, job_state.now) if completion.succeeded else ()
        if saving:
            return _still_saving(job_state, figures, saving)
        if job_state.observed.is_unread or is_unread(plan, job_state.observed):
            return StatusResult(old, wake_after_seconds=_UNREAD_SECONDS)
        nothing_to_clean = is_cleaned_up(plan, job_state.observed, job_state.replica_states, job_state.now)
        status = ended_status(
            figures, completion, next_conditions, format_time(job_state.now), nothing_to_clean=nothing_to_clean
        )
        return _result_of(job_state, status, ScalingDecision(old.scaling))
    resizing = decide_scaling(job_state, next_conditions)
    figures = with_restart(job_state, replace(figures, scaling=resizing.scaling))
    if plan.policy.is_suspended_by_user:
        return _result_of(job_state, suspended_status(plan, figures, next_conditions, reverted), resizing)
    others = (Obstacle(reverted),) if reverted else ()
    status = active_status(job_state, figures, next_conditions, (*obstacles, *others))
    return _result_of(job_state, status, resizing, suspends=wait is not None and wait.suspends)


def _set_preempted(job_state: JobState, wait: GangWait, next_conditions: Conditions) -> None:
    """The condition stays until the gang is admitted again, or continues because its pods were not deleted in time."""
    preemptor = preemptor_of(job_state.observed.gang)
    if preemptor:
        message = f"{preemptor} gets the capacity: all pods are deleted, and the job waits for capacity again"
        next_conditions.set(conditions.PREEMPTED, True, reasons.PREEMPTED, message)
    elif wait.scheduled:
        next_conditions.clear(conditions.PREEMPTED, reasons.GANG_ADMITTED, "The job has capacity again")


def _still_saving(job_state: JobState, figures: TrainingStatus, saving: Sequence[ReplicaState]) -> StatusResult:
    """Returns the status of a job that has succeeded and waits for its last checkpoint.

    The successes are recorded at once, so that the job succeeds even if their nodes are lost now.
    """
    old, now = job_state.status, job_state.now
    status = replace(
        figures, reason=f"The last checkpoint is being saved: {join_ids([state.replica.id for state in saving])}"
    )
    wake_after_seconds = min(seconds_until_saved(state, now) for state in saving)
    if status == old:
        return StatusResult(old, wake_after_seconds=wake_after_seconds)
    return StatusResult(
        status,
        tuple(checkpoint_events(old, status)),
        wake_after_seconds,
        is_urgent=status.succeeded_indexes != old.succeeded_indexes,
    )


def _result_of(
    job_state: JobState, status: TrainingStatus, resizing: ScalingDecision, *, suspends: bool = False
) -> StatusResult:
    """Returns the result for the status, with its events and when to sync the job again."""
    plan, old = job_state.plan, job_state.status
    if status == old:
        wake_after_seconds = _wake_after(job_state, old)
        return StatusResult(
            old, wake_after_seconds=wake_after_seconds, suspend_job=suspends, scale_to=resizing.scale_to
        )
    events = (*status_events(job_state, status), *checkpoint_events(old, status), *resizing.events)
    if is_finished(status):
        return _result_of_end(job_state.job, status, events, job_state.now)
    would_lose_success = _would_lose_success(job_state)
    return StatusResult(
        status,
        events,
        0.0 if would_lose_success or _has_actions_after_write(job_state, status) else _wake_after(job_state, status),
        suspend_job=suspends,
        scale_to=resizing.scale_to,
        is_urgent=has_last_words(plan, job_state.observed, old.progress, status.progress)
        or would_lose_success
        # The deletion of suspended Jobs waits for it.
        or (had_all_jobs(plan, old) and not had_all_jobs(plan, status)),
    )


def _has_actions_after_write(job_state: JobState, status: TrainingStatus) -> bool:
    """Reports whether actions are due as soon as this status is written."""
    plan, old = job_state.plan, job_state.status
    if status.phase == PHASE_CLEAN_UP or any(state.must_redo for state in job_state.replica_states):
        return True
    if plan.replicas.restarts_together and status.restarts != old.restarts:
        return True
    if (
        plan.carrier is not None
        and plan.policy.suspend
        and not conditions.has_true(old.conditions, conditions.SUSPENDED)
    ):
        return True
    return (old.scaling is not None or plan.scaling.resize == BY_RESTART) and status.scaling != old.scaling


def _would_lose_success(job_state: JobState) -> bool:
    """Reports whether the Job of a replica whose success is not recorded yet is gone, or will be deleted next."""
    stale = {job.metadata.name for job in job_state.stale.jobs}
    return any(
        state.job is None or state.replica.name in stale or not is_of_attempt(job_state.plan, state.job)
        for state in unrecorded_successes(job_state.replica_states, job_state.status)
    )


def _wake_after(job_state: JobState, status: TrainingStatus) -> float | None:
    plan, states, wait, now = job_state.plan, job_state.replica_states, job_state.wait, job_state.now
    times = (
        seconds_until_deadline(plan, status.start_time, now),
        seconds_until_change(states, status.start_time, now),
        seconds_until_pod_lost(plan, job_state.observed, now),
        seconds_until_held_up(job_state.observed, now),
        seconds_until_restart(plan, status, now) or None,
        next_attribution_seconds(states, now),
        _seconds_until_replaced(states, now),
        seconds_until_unexplained(job_state),
        seconds_until_config_timeout(plan, job_state.unfinished, now),
        seconds_until_join_timeout(plan, job_state.unfinished, status, now),
        wait.seconds_left if wait is not None and not plan.policy.is_suspended_by_user else None,
    )
    return min((max(0.0, time) for time in times if time is not None), default=None)


def _seconds_until_removal(states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Returns when the first pod that does nothing any more is deleted, or is not waited for any more if it is kept."""
    left = [seconds for state in states if (seconds := seconds_until_removal(state, now)) is not None]
    moments = (*left, *(seconds + SUSPENDED_AFTER_SECONDS for seconds in left))
    # One second is added, since timestamps have whole seconds.
    return min((seconds + 1 for seconds in moments if seconds > -1), default=None)


def _seconds_until_replaced(states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Returns when the back-off of the first replica whose pod has ended is over."""
    left = (seconds_until_replica_restart(state, now) for state in states if state.must_redo)
    return min((seconds + 1 for seconds in left if seconds > 0), default=None)


def is_minor(old: TrainingStatus, result: StatusResult) -> bool:
    """Reports whether the write may be delayed: only counts and messages differ, which can be observed again."""
    if result.events or result.is_urgent:
        return False
    return _without_minor_fields(old) == _without_minor_fields(result.status)


def _without_minor_fields(status: TrainingStatus) -> TrainingStatus:
    return replace(
        status,
        reason="",
        roles=(),
        scaled_replicas=0,
        succeeded_indexes=(),
        progress=None,
        conditions=tuple(
            replace(condition, message="") if condition.type == conditions.SCHEDULED else condition
            for condition in status.conditions
        ),
    )
