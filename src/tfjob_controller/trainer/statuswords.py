"""What a status says: phase, state, reason and conditions of a job that goes on, is suspended, or has ended.

The figures are there already (`statusfigures`); `said` are the conditions so far, and what is new goes into them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.gangwait import Wait
from tfjob_controller.trainer.observed import Obstacle
from tfjob_controller.trainer.phases import CLEAN_UP, CREATING, DONE, FAILED, RUNNING
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.predecessors import why_not_made
from tfjob_controller.trainer.replicas import View
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.trainer.statusevents import listed
from tfjob_controller.trainer.steps import Step
from tfjob_controller.trainer.training import Verdict

# The summary of a job that does not run yet, in kubectl's word for pods. A job whose phase stays Running while all of
# its replicas are started again is pending for that time.
PENDING = "Pending"


def ended(
    figures: TrainingStatus, verdict: Verdict, said: Conditions, now_text: str, *, nothing_to_clean: bool
) -> TrainingStatus:
    """The phase CleanUp is passed over where nothing is to be cleaned: one write less."""
    said.clear(conditions.RUNNING, verdict.reason, verdict.words)
    said.clear(conditions.RESTARTING, verdict.reason, verdict.words)
    if said.is_true(conditions.RESIZING):
        said.set(conditions.RESIZING, False, verdict.reason, verdict.words)
    said.set(conditions.SUCCEEDED if verdict.succeeded else conditions.FAILED, True, verdict.reason, verdict.words)
    state = replicas.SUCCEEDED if verdict.succeeded else replicas.FAILED
    return replace(
        figures,
        phase=last_phase(verdict.succeeded) if nothing_to_clean else CLEAN_UP,
        state=state,
        summary=state,
        reason=verdict.words,
        completion_time=now_text,
        conditions=said.all(),
    )


def last_phase(succeeded: bool) -> str:
    return DONE if succeeded else FAILED


def suspended(figures: TrainingStatus, said: Conditions) -> TrainingStatus:
    words = "Suspended: spec.suspend is true"
    said.clear(conditions.RUNNING, reasons.SUSPENDED, words)
    said.clear(conditions.RESTARTING, reasons.SUSPENDED, words)
    said.set(conditions.SUSPENDED, True, reasons.SUSPENDED, words)
    scheduled = said.find(conditions.SCHEDULED)
    if scheduled is not None and scheduled.reason not in (reasons.TIMED_OUT, reasons.GANG_SCHEDULING_OFF):
        said.set(conditions.SCHEDULED, False, reasons.NOT_WAITING, words)
    return replace(
        figures,
        phase=CREATING,
        state=replicas.UNKNOWN,
        summary=conditions.SUSPENDED,
        reason=words,
        conditions=said.all(),
    )


def going_on(
    state: JobState, figures: TrainingStatus, said: Conditions, obstacles: Sequence[Obstacle]
) -> TrainingStatus:
    chief, runner = state.views[0], _runner(state.views[0], state.step)
    said.clear(conditions.SUSPENDED, reasons.RESUMED, "spec.suspend is false")
    if runner.is_up and not state.must_restart_all:
        said.set(conditions.RUNNING, True, reasons.CHIEF_RUNNING, f"{runner.replica.id} runs")
    else:
        said.clear(conditions.RUNNING, reasons.CHIEF_NOT_RUNNING, f"{runner.replica.id} does not run")
    _say_restarting(state, said)
    phase = RUNNING if (runner.is_up or figures.phase == RUNNING) and not state.is_held_back else CREATING
    reason = "; ".join(_why_waiting(state.step, obstacles, state.wait))
    return replace(
        figures,
        phase=phase,
        state=_state_of(state.plan, phase, chief),
        summary=RUNNING if said.is_true(conditions.RUNNING) and not state.is_held_back else PENDING,
        reason=reason,
        conditions=said.all(),
    )


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


def _say_restarting(state: JobState, said: Conditions) -> None:
    over = {view.replica.id for view in state.restart_causes}
    restarting = [view.replica.id for view in state.unfinished if view.is_restarting or view.replica.id in over]
    if restarting:
        words = f"{listed(restarting)} to be started again"
        # Of a set, each restart waits from its own time on, also where one follows on the other: see `setbackoff`.
        said.set(conditions.RESTARTING, True, reasons.REPLICAS_RESTARTING, words, anew=bool(over))
    elif not _is_still_restarting(state, said):
        said.clear(conditions.RESTARTING, reasons.NONE_RESTARTING, "No replica waits to be started again")


def _is_still_restarting(state: JobState, said: Conditions) -> bool:
    if not state.plan.restarts_together or not said.is_true(conditions.RESTARTING):
        return False
    return not _are_up_together(state.unfinished)


def _are_up_together(views: Sequence[View]) -> bool:
    together = [view for view in views if view.replica.role.restarts_together]
    return all(view.is_up or view.state == replicas.SUCCEEDED for view in together)


def _why_waiting(step: Step, obstacles: Sequence[Obstacle], wait: Wait | None) -> Iterator[str]:
    """Passing obstacles, then what the job as a whole or else the first replica waits for beyond its turn."""
    yield from dict.fromkeys(obstacle.words for obstacle in obstacles)
    if wait is not None and wait.words:
        yield shortened(wait.words)
        return
    reasons_by_id = ((view.replica.id, view.pending or why_not_made(step.observed, view)) for view in step.views)
    waiting = [(id_, words) for id_, words in reasons_by_id if words]
    if waiting:
        (id_, words), more = waiting[0], f" (and {len(waiting) - 1} more wait)" if len(waiting) > 1 else ""
        yield f"{id_}: {words}{more}"
