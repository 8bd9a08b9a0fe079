"""Evaluates a job: the one place where what is observed turns into what every decision of a sync reads.

    state = evaluate(job, plan, observed, now)
    actions = plan_actions(state)               # the writes
    result = next_status(state, obstacles)      # the status, its events, and when to look again

Both functions are pure and read only the state, so they cannot disagree about a replica, a gang or the end of a job.
The reconciler evaluates a job again only after writes have changed what is observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.tfjob import BY_RESTART
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer.elastic import fitted
from tfjob_controller.trainer.gang import Gate, gate_of
from tfjob_controller.trainer.gangwait import Wait, wait_of
from tfjob_controller.trainer.generations import Turnover, turnover_of, without_lost, workers_to_know
from tfjob_controller.trainer.groupwait import group_wait
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.replicas import View
from tfjob_controller.trainer.restarts import next_restart_counts
from tfjob_controller.trainer.steps import Step, due_step
from tfjob_controller.trainer.training import Verdict, judge, of_steps_to_do, to_restart
from tfjob_controller.trainer.views import views_of
from tfjob_controller.trainer.work import Work


@dataclass(frozen=True, slots=True)
class JobState:
    """A job at one moment. All fields follow from `job`, its compiled plan, `observed` and `now`."""

    job: Work
    # The effective plan: with the workers, the restart attempt and the suspension that hold now.
    plan: Plan
    observed: Observed
    # `observed` without the pods of earlier Jobs that were lost with their node.
    reachable: Observed
    now: datetime
    # One for each replica of the plan, the chief's first.
    views: Sequence[View]
    # Those of steps that are not completed.
    unfinished: Sequence[View]
    # Replicas whose failure restarts the whole set.
    restart_causes: Sequence[View]
    # The highest restart count seen of each pod or child Job, by UID, and their total.
    restart_counts: Mapping[str, int]
    restarts: int
    step: Step
    # None for a job that this project's gang scheduler does not run as a gang.
    gate: Gate | None
    # Children of earlier attempts in the due step.
    turnover: Turnover
    # With resize Restart: how many workers TF_CONFIG should list.
    known_workers: int
    # None for a job that no scheduler runs as a gang.
    wait: Wait | None
    # How the job ends; None while it goes on. The refusal of a write may end it as well: see `next_status`.
    completion: Verdict | None

    @property
    def status(self) -> TrainingStatus:
        """The status on record, or the one that waits to be written."""
        return self.job.status

    @property
    def must_restart_all(self) -> bool:
        return bool(self.restart_causes)

    @property
    def has_started(self) -> bool:
        """Reports whether the job's time counts: its gang is admitted, or needs no admission."""
        if not self.step.is_first:
            return True
        if self.gate is not None:
            return self.gate.is_open
        return self.wait is None or self.wait.scheduled or self.step.plan.gang_refused

    @property
    def is_held_back(self) -> bool:
        """Reports whether a gang's scheduler lets no replica run now."""
        return self.plan.is_held or (self.gate is not None and not self.gate.is_open)


def evaluate(job: Work, plan: Plan, observed: Observed, now: datetime) -> JobState:
    """Returns the state of a job. `plan` is what the job was compiled into."""
    status = job.status
    plan = fitted(plan, observed, status)
    views = views_of(plan, observed, status, now)
    unfinished = of_steps_to_do(plan, views)
    causes = to_restart(plan, unfinished)
    counts = next_restart_counts(
        [view for view in views if not view.replica.role.restarts_together], status.restart_counts
    )
    restarts = status.restarts if plan.restarts_together else sum(counts.values())
    reachable = without_lost(plan, observed, now)
    step = due_step(plan, views, reachable)
    gate = gate_of(step.plan, step.observed, step.views)
    wait = wait_of(step.plan, gate, step.observed, status, now) or group_wait(plan, step, status, now)
    completion = judge(plan, views, unfinished, causes, restarts, status.start_time, now)
    if completion is None and wait is not None and not plan.is_suspended:
        completion = wait.verdict
    return JobState(
        job=job,
        plan=plan,
        observed=observed,
        reachable=reachable,
        now=now,
        views=views,
        unfinished=unfinished,
        restart_causes=causes,
        restart_counts=counts,
        restarts=restarts,
        step=step,
        gate=gate,
        turnover=gate.turnover if gate is not None else turnover_of(step.plan, step.observed, step.views),
        known_workers=_known_workers(plan, views, gate),
        wait=wait,
        completion=completion,
    )


def _known_workers(plan: Plan, views: Sequence[View], gate: Gate | None) -> int:
    if plan.resize != BY_RESTART:
        return 0
    return workers_to_know(plan, views, gate.seats if gate is not None and gate.is_open else None)
