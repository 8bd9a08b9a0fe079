"""The replica states of a job for `explain` and `describe`, in jobs that run and in jobs that have ended. Pure.

The functions are those of the controller (`jobs.evaluation`, `jobs.state`), so a client shows the state on which the
controller decides. The controller does not evaluate ended jobs any more; there, two more states are needed: a replica
without an end of its own was stopped with the job, or never started. A replica that made the job fail has failed,
although its pod was deleted with the job: only the reason of the job still tells how.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.client.kinds import AnyJob, kind_of, status_of
from tfjob_controller.jobs.evaluation.jobstate import replica_states as views_of_plan
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.scaling.effective_plan import effective_plan
from tfjob_controller.jobs.state.barepods import by_pod
from tfjob_controller.jobs.state.completion import current_step
from tfjob_controller.jobs.state.observed import ObservedState, by_replica
from tfjob_controller.jobs.state.pods import is_finished as is_finished_pod
from tfjob_controller.jobs.state.replica_state import FAILED, SUCCEEDED, ReplicaState
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, TrainingStatus, is_finished

# The states of the replicas of an ended job that do not run and have neither succeeded nor failed.
STOPPED, NOT_STARTED = "Stopped", "NotStarted"


def replica_views(job: AnyJob, observed: ObservedState, now: datetime) -> tuple[ReplicaState, ...]:
    """Returns the replica states of a job, the chief first; empty if the job has no plan yet or is invalid."""
    kind = kind_of(job)
    if kind.problem_of(job) is not None or (plan := kind.plan_of(job)) is None:
        return ()
    status = status_of(job)
    observed = by_pod(plan, by_replica(plan, observed), status)
    effective = effective_plan(plan, observed, status)
    views = views_of_plan(effective, observed, status, now)
    return _at_the_end(effective, views, observed, failure_of(status)) if has_ended(status) else views


def replica_blamed(reason: str, replicas: Container[str]) -> str:
    """Returns the replica that the reason of a failed job names first; empty if it names none of `replicas`."""
    names = (clause.partition(" ")[0].rstrip(":") for clause in reason.split("; "))
    return next((name for name in names if name in replicas), "")


def has_ended(status: TrainingStatus) -> bool:
    """Reports whether the job has ended, although its pods may not be deleted yet."""
    return is_finished(status) or status.phase == PHASE_CLEAN_UP


def failure_of(status: TrainingStatus) -> str:
    """Returns why the job has failed; empty if it has not."""
    return status.reason if FAILED in (status.phase, status.state) else ""


def _at_the_end(
    plan: Plan, views: tuple[ReplicaState, ...], observed: ObservedState, failure: str
) -> tuple[ReplicaState, ...]:
    """Returns the states in an ended job, where no replica starts or is restarted any more.

    `failure` is why the job has failed; empty if it has not.
    """
    blamed = replica_blamed(failure, {view.replica.id for view in views})
    step = current_step(plan, views, observed)
    reached = {view.replica.name for view in (*step.completed, *step.replica_states)}
    return tuple(
        _ended(view, failure if view.replica.id == blamed else "")
        if view.replica.name in reached
        else replace(view, state=NOT_STARTED, pending="")
        for view in views
    )


def _ended(view: ReplicaState, failure: str) -> ReplicaState:
    """Returns the state of a replica in an ended job; `failure` is that of the job if the replica has caused it."""
    pod, exited = view.pod, view.exited
    if view.is_up or view.state in (SUCCEEDED, FAILED):
        return view
    if failure:
        return replace(
            view, state=FAILED, pending="" if exited is not None else failure.removeprefix(view.replica.id).lstrip(": ")
        )
    if pod is None:
        return replace(view, state=STOPPED, pending="")
    has_failed = is_finished_pod(pod) or (exited is not None and exited.exit_code != 0)
    return replace(view, state=FAILED if has_failed and not pod.metadata.deletion_timestamp else STOPPED)
