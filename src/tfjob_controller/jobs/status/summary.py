"""Fills in the phase, state, reason and conditions of a status, and returns the events that follow from it.

`figures` is the status with its counts (`counts.py`). `next_conditions` has the conditions, which are
updated in place. Events of a status are emitted once it is written. `controller.reporter` emits those of writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import NORMAL, WARNING, Conditions, StatusEvent
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import blocking_pod_message
from tfjob_controller.jobs.state.completion import (
    Completion,
    Step,
    failed_sidecar,
    failure_message,
    missing_replicas,
    why_ended,
)
from tfjob_controller.jobs.state.observed import Obstacle
from tfjob_controller.jobs.state.podreasons import RESTARTED_IN_PLACE
from tfjob_controller.jobs.state.pods import has_unfinished_sidecar
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.state.restarts import (
    backoff_seconds,
    first_failure,
    pod_key,
    replica_restarts,
    restarted_states,
)
from tfjob_controller.jobs.trainingjob import (
    PHASE_CLEAN_UP,
    PHASE_CREATING,
    PHASE_DONE,
    PHASE_FAILED,
    PHASE_RUNNING,
    TrainingStatus,
)
from tfjob_controller.util.text import shortened

# The summary of a job that does not run yet, as kubectl calls such pods. While all replicas of a job are restarted, its
# phase stays Running and its summary is Pending.
PENDING = "Pending"


def ended_status(
    figures: TrainingStatus,
    completion: Completion,
    next_conditions: Conditions,
    now_text: str,
    *,
    nothing_to_clean: bool,
) -> TrainingStatus:
    """Returns the status of a job that has ended. With nothing to clean up, the phase CleanUp is skipped."""
    message = completion.message
    next_conditions.clear(conditions.RUNNING, completion.reason, message)
    next_conditions.clear(conditions.RESTARTING, completion.reason, message)
    if next_conditions.is_true(conditions.RESIZING):
        next_conditions.set(conditions.RESIZING, False, completion.reason, message)
    end = conditions.SUCCEEDED if completion.succeeded else conditions.FAILED
    next_conditions.set(end, True, completion.reason, message)
    final = replica_state.SUCCEEDED if completion.succeeded else replica_state.FAILED
    return replace(
        figures,
        phase=last_phase(completion.succeeded) if nothing_to_clean else PHASE_CLEAN_UP,
        state=final,
        summary=final,
        reason=as_reason(message),
        completion_time=now_text,
        conditions=next_conditions.all(),
    )


def last_phase(succeeded: bool) -> str:
    return PHASE_DONE if succeeded else PHASE_FAILED


def as_finished(status: TrainingStatus) -> TrainingStatus:
    """Returns the status of a job that has ended as that of one that is cleaned up."""
    return replace(status, phase=last_phase(status.state == replica_state.SUCCEEDED))


def suspended_status(
    plan: Plan, figures: TrainingStatus, next_conditions: Conditions, reverted: str = ""
) -> TrainingStatus:
    """Returns the status of a suspended job. `reverted` names the suspensions that another client keeps reverting."""
    message = "Suspended: spec.suspend is true"
    next_conditions.clear(conditions.RUNNING, reasons.SUSPENDED, message)
    next_conditions.clear(conditions.RESTARTING, reasons.SUSPENDED, message)
    next_conditions.set(conditions.SUSPENDED, True, reasons.SUSPENDED, message)
    next_conditions.clear(conditions.PREEMPTED, reasons.SUSPENDED, message)
    scheduled = next_conditions.find(conditions.SCHEDULED)
    # A time-out that suspends the job is why it is suspended.
    kept = (reasons.GANG_SCHEDULING_OFF, *((reasons.TIMED_OUT,) if plan.scheduling.suspends_on_timeout else ()))
    if scheduled is not None and scheduled.reason not in kept:
        next_conditions.set(conditions.SCHEDULED, False, reasons.NOT_WAITING, message)
    return replace(
        figures,
        phase=PHASE_CREATING,
        state=replica_state.UNKNOWN,
        summary=conditions.SUSPENDED,
        reason="; ".join(filter(None, (message, reverted))),
        conditions=next_conditions.all(),
    )


def active_status(
    job_state: JobState, figures: TrainingStatus, next_conditions: Conditions, obstacles: Sequence[Obstacle]
) -> TrainingStatus:
    chief, runner = job_state.replica_states[0], _runner(job_state.replica_states[0], job_state.step)
    missing = missing_replicas(job_state.unfinished)
    is_up = runner.is_up and not missing
    if is_up and not job_state.must_restart_all:
        next_conditions.set(conditions.RUNNING, True, reasons.CHIEF_RUNNING, f"{runner.replica.id} runs")
    elif runner.is_up and missing:
        message = f"Fewer {runner.replica.role.name}s than the minimum of {runner.replica.role.min_replicas} run"
        next_conditions.clear(conditions.RUNNING, reasons.TOO_FEW_NODES, message)
    else:
        next_conditions.clear(conditions.RUNNING, reasons.CHIEF_NOT_RUNNING, f"{runner.replica.id} does not run")
    _set_restarting(job_state, next_conditions)
    phase = (
        PHASE_RUNNING if (is_up or figures.phase == PHASE_RUNNING) and not job_state.is_held_back else PHASE_CREATING
    )
    waits = _why_waiting(job_state, obstacles, figures.reason)
    reason = "; ".join(waits) or as_reason(_why_restarting(job_state, next_conditions))
    return replace(
        figures,
        phase=phase,
        state=_state_of(job_state.plan, phase, chief),
        summary=PHASE_RUNNING
        if next_conditions.is_true(conditions.RUNNING) and not job_state.is_held_back
        else PENDING,
        reason=reason,
        conditions=next_conditions.all(),
    )


def _runner(chief: ReplicaState, step: Step) -> ReplicaState:
    """Returns the replica that tells whether the job runs: the chief, or once it has succeeded one that still runs."""
    if chief.state != replica_state.SUCCEEDED:
        return chief
    return next((state for state in step.replica_states if state.is_up), step.replica_states[0])


def _state_of(plan: Plan, phase: str, chief: ReplicaState) -> str:
    """Returns the chief's state if the chief alone decides, and otherwise the state that the phase implies."""
    if not plan.replicas.needed:
        return chief.state
    return replica_state.RUNNING if phase == PHASE_RUNNING else replica_state.UNKNOWN


def set_reverted(next_conditions: Conditions, reverted: str) -> None:
    """Sets the condition ChangesReverted, which only jobs have that another client has hindered."""
    if reverted:
        next_conditions.set(conditions.CHANGES_REVERTED, True, reasons.CHANGE_REVERTED, reverted)
    else:
        message = "No change of a child is reverted any more"
        next_conditions.clear(conditions.CHANGES_REVERTED, reasons.CHANGES_ACCEPTED, message)


def reverted_event(old: TrainingStatus, new: TrainingStatus) -> Iterator[StatusEvent]:
    """Yields one event when changes begin to be reverted, not one for each of them."""
    if conditions.has_true(new.conditions, conditions.CHANGES_REVERTED) and not conditions.has_true(
        old.conditions, conditions.CHANGES_REVERTED
    ):
        condition = conditions.find(new.conditions, conditions.CHANGES_REVERTED)
        yield StatusEvent(WARNING, reasons.CHANGE_REVERTED, condition.message if condition is not None else "")


def _set_restarting(job_state: JobState, next_conditions: Conditions) -> None:
    over = {state.replica.id for state in job_state.restart_causes}
    restarting = [state.replica.id for state in job_state.unfinished if state.is_restarting or state.replica.id in over]
    if restarting:
        message = f"{join_ids(restarting)} will be restarted"
        if over:
            message = shortened(f"{message}: {failure_message(first_failure(job_state.restart_causes))}")
        # The back-off of each restart starts at its own failure, even if the condition is True (`state.restarts`).
        next_conditions.set(conditions.RESTARTING, True, reasons.REPLICAS_RESTARTING, message, anew=bool(over))
    elif not _is_still_restarting(job_state, next_conditions):
        next_conditions.clear(conditions.RESTARTING, reasons.NONE_RESTARTING, "No replica waits for a restart")


def _is_still_restarting(job_state: JobState, next_conditions: Conditions) -> bool:
    if not job_state.plan.replicas.restarts_together or not next_conditions.is_true(conditions.RESTARTING):
        return False
    # The replicas of later steps do not exist yet.
    together = (state for state in job_state.step.replica_states if state.replica.role.restarts_together)
    return any(not state.is_up and state.state != replica_state.SUCCEEDED for state in together)


def _why_waiting(job_state: JobState, obstacles: Sequence[Obstacle], before: str) -> Iterator[str]:
    """Yields the obstacles that may pass, then why the job as a whole waits, or else why its first replica does."""
    step, wait = job_state.step, job_state.wait
    yield from dict.fromkeys(obstacle.message for obstacle in obstacles)
    if wait is not None and wait.job_reason:
        yield shortened(wait.job_reason)
        return
    reasons_by_id = (
        (
            state.replica.id,
            state.pending or blocking_pod_message(step.observed, state, job_state.now) or _why_down(state, before),
        )
        for state in step.replica_states
    )
    waiting = [(id_, reason) for id_, reason in reasons_by_id if reason]
    if waiting:
        (id_, reason), more = waiting[0], f" (and {len(waiting) - 1} more wait)" if len(waiting) > 1 else ""
        yield as_reason(f"{id_}: {reason}{more}")


def _why_restarting(job_state: JobState, next_conditions: Conditions) -> str:
    """Returns why a set is restarted, until it is up again, or if it is elastic until it is created again."""
    restarting, replicas = next_conditions.find(conditions.RESTARTING), job_state.plan.replicas
    is_gone = all(state.job is None for state in job_state.step.replica_states)
    is_set = replicas.restarts_together and (is_gone or not replicas.is_elastic)
    return restarting.message if is_set and restarting is not None and restarting.status == conditions.TRUE else ""


def _why_down(state: ReplicaState, before: str) -> str:
    """Returns how a replica ended that will run again; empty if it runs, or has not ended.

    `before` is the last reason of the job, which still tells how a pod ended that is gone.
    """
    is_set = state.replica.role.restarts_together and not state.replica.role.is_elastic
    if state.is_up or not state.is_restarting or state.state == replica_state.SUCCEEDED or is_set:
        return ""
    if state.is_disrupted and state.pod is not None:
        return "its pod was deleted, evicted or lost; another one is started once it has ended"
    if state.pod is None:
        ended = _end_told(before, state.replica.id) or "its pod is gone"
    else:
        ended = why_ended(state) or "ended with exit code 0"
    return f"{ended}; {_how_restarted(state)}"


def _how_restarted(state: ReplicaState) -> str:
    role, pod, exited = state.replica.role, state.pod, state.exited
    if not state.is_replaced:
        if pod is None or exited is None or replica_state.is_restarted_in_place(state.replica, pod, exited):
            return RESTARTED_IN_PLACE
        if has_unfinished_sidecar(pod, role.container):
            return _ONCE_ENDED
    if role.is_elastic:
        # The Job controller's own, by all failures of the Job.
        return f"{_AGAIN} with back-off"
    # A kubelet reports the end of a pod some time after that of its last container.
    delay_seconds = backoff_seconds(replica_restarts(replace(state, is_replaced=True)))
    return f"{_AGAIN} after {delay_seconds} s" if delay_seconds else _AGAIN


_AGAIN = "started again"
_ONCE_ENDED = f"{_AGAIN} once its sidecars have ended"


def _end_told(reason: str, replica_id: str) -> str:
    """Returns how the replica ended according to the reason; empty if it has no such clause."""
    ended, _, then = reason.rpartition("; ")
    is_told = ended.startswith(f"{replica_id}: ") and then.startswith((RESTARTED_IN_PLACE, _AGAIN))
    return ended.removeprefix(f"{replica_id}: ") if is_told else ""


# The number of replicas that a message names.
_SHOWN = 5


def phase_event(status: TrainingStatus) -> StatusEvent:
    kind = WARNING if status.state == replica_state.FAILED else NORMAL
    note = f"Job is in phase {status.phase}"
    return StatusEvent(kind, status.phase, f"{note}: {status.reason}" if status.reason else note)


def join_ids(ids: Sequence[str]) -> str:
    """Returns the first ids, and the number of the others."""
    shown = ", ".join(ids[:_SHOWN])
    return f"{shown} and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else shown


def status_events(job_state: JobState, new: TrainingStatus) -> Iterator[StatusEvent]:
    old = job_state.status
    if new.restarts > old.restarts:
        yield StatusEvent(WARNING, reasons.RESTARTED, _restart_note(job_state, new))
    was_suspended, is_suspended = (
        conditions.has_true(status.conditions, conditions.SUSPENDED) for status in (old, new)
    )
    if was_suspended != is_suspended:
        yield (
            StatusEvent(NORMAL, reasons.RESUMED, "Job is resumed")
            if was_suspended
            else StatusEvent(NORMAL, reasons.SUSPENDED, "Job is suspended: its pods are stopped")
        )
    if new.progress is not None and new.progress.ignored and not (old.progress and old.progress.ignored):
        yield StatusEvent(WARNING, reasons.PROGRESS_IGNORED, f"Progress is not counted: {new.progress.ignored}")
    if new.phase not in (PHASE_CLEAN_UP, PHASE_DONE, PHASE_FAILED):
        yield from reverted_event(old, new)
        yield from _scheduling_event(old, new)
    # Other events say that a job was suspended, and what a job that waits for nothing has created.
    if new.phase != old.phase and (new.phase != PHASE_CREATING or (new.reason and not is_suspended)):
        yield phase_event(new)


SCHEDULING_EVENTS = {
    reasons.GANG_ADMITTED: NORMAL,
    reasons.GANG_SCHEDULED: NORMAL,
    reasons.WAITING_FOR_CAPACITY: NORMAL,
    reasons.EXCEEDS_CLUSTER_CAPACITY: WARNING,
    reasons.PREEMPTED: WARNING,
    reasons.PREEMPTING: NORMAL,
    reasons.TIMED_OUT: WARNING,
    reasons.GANG_SCHEDULING_OFF: WARNING,
}


def _scheduling_event(old: TrainingStatus, new: TrainingStatus) -> Iterator[StatusEvent]:
    """Yields an event if the reason of the condition Scheduled has changed; a changed message is no event."""
    before, now = (conditions.find(status.conditions, conditions.SCHEDULED) for status in (old, new))
    if now is not None and (before is None or before.reason != now.reason) and now.reason in SCHEDULING_EVENTS:
        yield StatusEvent(SCHEDULING_EVENTS[now.reason], now.reason, now.message)


def _restart_note(job_state: JobState, new: TrainingStatus) -> str:
    if job_state.must_restart_all:
        message = f"Restarting all replicas: {failure_message(first_failure(job_state.restart_causes))}"
        limit = job_state.plan.policy.backoff_limit
        if limit is None or new.disruptions > job_state.status.disruptions:
            return f"{shortened(message)} (restart {new.restarts})"
        return f"{shortened(message)} (restart {new.restarts - new.disruptions} of {limit})"
    if job_state.plan.replicas.is_elastic:
        return f"Replacing {_why_replaced(job_state)} ({new.restarts} restarts so far)"
    restarted = restarted_states(job_state.replica_states, job_state.status.restart_counts)
    first = next((state for state in restarted if state.is_replaced or state.exited is not None), None)
    why = f": {shortened(failure_message(first))}" if first is not None else ""
    return f"Restarted {join_ids([state.replica.id for state in restarted])}{why} ({new.restarts} restarts so far)"


def _why_replaced(job_state: JobState) -> str:
    """Returns which nodes of an elastic job were counted as restarted in this sync, and how the first of them ended."""
    counted = [key for key in job_state.restart_counts if key not in job_state.status.restart_counts]
    who = join_ids(list(dict.fromkeys(key.partition("/")[0] for key in counted)))
    ended = [
        replica_state.with_pod(state, pod)
        for state in job_state.replica_states
        for pod in state.pods
        if pod_key(pod) in counted
    ]
    if not ended:
        # They leave the job in a resize.
        return who
    first = first_failure(ended)
    return f"{who}: {shortened(failed_sidecar([first]) or failure_message(first))}"


# The reason of a job should be readable at a glance: `kubectl get -o wide` shows it in a column.
MAX_REASON = 400
# A reason begins with the replica and how it ended, and ends with the last words of its program.
_REASON_HEAD = 200


def as_reason(text: str) -> str:
    """Returns the text on one line of at most `MAX_REASON` characters, without words from its middle if need be."""
    line = " ".join(text.split())
    if len(line) <= MAX_REASON:
        return line
    head, tail = line[:_REASON_HEAD], line[_REASON_HEAD + 3 - MAX_REASON :]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"
