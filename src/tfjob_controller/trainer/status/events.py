"""The events that follow from a new status; those of writes are told by who writes.

An event that the controller is to emit, once the status that it speaks of is on record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.trainer import conditions, reasons
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.completion import failure_message
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.trainer.state.observed import PHASE_CLEAN_UP, PHASE_DONE, PHASE_FAILED
from tfjob_controller.trainer.state.pods import shortened
from tfjob_controller.trainer.state.restarts import restarted_ids

NORMAL = "Normal"
WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One event on the job: type `Normal` or `Warning`, a reason from reasons.py, and a sentence."""

    type: str
    reason: str
    note: str


# How many replicas a sentence names.
_SHOWN = 5


def phase_event(status: TrainingStatus) -> StatusEvent:
    kind = WARNING if status.state == replica_state.FAILED else NORMAL
    note = f"Job is in phase {status.phase}"
    return StatusEvent(kind, status.phase, f"{note}: {status.reason}" if status.reason else note)


def join_ids(ids: Sequence[str]) -> str:
    """A few by name, the rest as a number."""
    shown = ", ".join(ids[:_SHOWN])
    return f"{shown} and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else shown


def status_events(job_state: JobState, new: TrainingStatus) -> Iterator[StatusEvent]:
    old = job_state.status
    if new.restarts > old.restarts:
        yield StatusEvent(WARNING, reasons.RESTARTED, _restart_note(job_state, new))
    was_suspended = conditions.has_true(old.conditions, conditions.SUSPENDED)
    if was_suspended != conditions.has_true(new.conditions, conditions.SUSPENDED):
        yield StatusEvent(
            NORMAL, reasons.RESUMED if was_suspended else reasons.SUSPENDED, _suspension_note(was_suspended)
        )
    if new.progress is not None and new.progress.ignored and not (old.progress and old.progress.ignored):
        yield StatusEvent(WARNING, reasons.PROGRESS_IGNORED, f"Progress is not counted: {new.progress.ignored}")
    if new.phase not in (PHASE_CLEAN_UP, PHASE_DONE, PHASE_FAILED):
        yield from _scheduling_event(old, new)
    if new.phase != old.phase:
        yield phase_event(new)


_SCHEDULING_EVENTS = {
    reasons.GANG_ADMITTED: NORMAL,
    reasons.GANG_SCHEDULED: NORMAL,
    reasons.WAITING_FOR_CAPACITY: NORMAL,
    reasons.EXCEEDS_CLUSTER_CAPACITY: WARNING,
    reasons.TIMED_OUT: WARNING,
    reasons.GANG_SCHEDULING_OFF: WARNING,
}


def _scheduling_event(old: TrainingStatus, new: TrainingStatus) -> Iterator[StatusEvent]:
    """One for each change of what stands in the way, not of how much of it."""
    before, now = (conditions.find(each.conditions, conditions.SCHEDULED) for each in (old, new))
    if now is not None and (before is None or before.reason != now.reason) and now.reason in _SCHEDULING_EVENTS:
        yield StatusEvent(_SCHEDULING_EVENTS[now.reason], now.reason, now.message)


def _suspension_note(was_suspended: bool) -> str:
    return "Job is resumed" if was_suspended else "Job is suspended: its pods are stopped"


def _restart_note(job_state: JobState, new: TrainingStatus) -> str:
    if job_state.must_restart_all:
        words = f"All are started again, for {failure_message(job_state.restart_causes[0])}"
        limit = job_state.plan.policy.backoff_limit
        return f"{shortened(words)} (restart {new.restarts}{'' if limit is None else f' of {limit}'})"
    restarted = restarted_ids(job_state.replica_states, job_state.status.restart_counts)
    return f"Restarted {join_ids(restarted)}: {new.restarts} restarts so far"
