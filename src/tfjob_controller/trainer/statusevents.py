"""The events that follow from a new status; those of writes are told by who writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit
from tfjob_controller.trainer.phases import CLEAN_UP, DONE, FAILED
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.restarts import restarted_ids
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.trainer.training import how_failed

# How many replicas a sentence names.
_SHOWN = 5


def phase_event(status: TrainingStatus) -> Emit:
    kind = WARNING if status.state == replicas.FAILED else NORMAL
    note = f"Job is in phase {status.phase}"
    return Emit(kind, status.phase, f"{note}: {status.reason}" if status.reason else note)


def listed(ids: Sequence[str]) -> str:
    """A few by name, the rest as a number."""
    shown = ", ".join(ids[:_SHOWN])
    return f"{shown} and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else shown


def events_of(state: JobState, new: TrainingStatus) -> Iterator[Emit]:
    old = state.status
    if new.restarts > old.restarts:
        yield Emit(WARNING, reasons.RESTARTED, _restart_note(state, new))
    was_suspended = conditions.has_true(old.conditions, conditions.SUSPENDED)
    if was_suspended != conditions.has_true(new.conditions, conditions.SUSPENDED):
        yield Emit(NORMAL, reasons.RESUMED if was_suspended else reasons.SUSPENDED, _suspension_note(was_suspended))
    if new.progress is not None and new.progress.ignored and not (old.progress and old.progress.ignored):
        yield Emit(WARNING, reasons.PROGRESS_IGNORED, f"Progress is not counted: {new.progress.ignored}")
    if new.phase not in (CLEAN_UP, DONE, FAILED):
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


def _scheduling_event(old: TrainingStatus, new: TrainingStatus) -> Iterator[Emit]:
    """One for each change of what stands in the way, not of how much of it."""
    before, now = (conditions.find(each.conditions, conditions.SCHEDULED) for each in (old, new))
    if now is not None and (before is None or before.reason != now.reason) and now.reason in _SCHEDULING_EVENTS:
        yield Emit(_SCHEDULING_EVENTS[now.reason], now.reason, now.message)


def _suspension_note(was_suspended: bool) -> str:
    return "Job is resumed" if was_suspended else "Job is suspended: its pods are stopped"


def _restart_note(state: JobState, new: TrainingStatus) -> str:
    if state.must_restart_all:
        words = f"All are started again, for {how_failed(state.restart_causes[0])}"
        limit = state.plan.policy.backoff_limit
        return f"{shortened(words)} (restart {new.restarts}{'' if limit is None else f' of {limit}'})"
    return (
        f"Restarted {listed(restarted_ids(state.views, state.status.restart_counts))}: {new.restarts} restarts so far"
    )
