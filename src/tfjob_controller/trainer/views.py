"""The one way from what is observed to views: decisions and words must see the same."""

from __future__ import annotations

from datetime import datetime

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.gang import living
from tfjob_controller.trainer.generations import of_this_generation
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.replicas import RUNNING, SUCCEEDED, UNKNOWN, View, classify, tried_again


def views_of(plan: Plan, observed: Observed, status: TrainingStatus, now: datetime) -> tuple[View, ...]:
    """A view of each replica of a plan that is `fitted`, without what says nothing of the program any more."""
    seen = of_this_generation(plan, living(plan, observed))
    seen_now = classify(plan, seen, status.succeeded_indexes, now, status.start_time)
    views = tuple(tried_again(view) if _was_to_run_again(view, status) else view for view in seen_now)
    if not plan.restarts_together:
        return views
    had = plan.gang is None and had_all(plan, status)
    return tuple(tried_again(view) if _has_lost_its_job(plan, view, had) else view for view in views)


def _was_to_run_again(view: View, status: TrainingStatus) -> bool:
    """Is it on record that its Job must be made anew, although the Job, whose pod has gone since, says Complete?

    An evicted program may end with 0, and a kubelet deletes its pod in the moment after that. The count of restarts,
    which is written before the Job is deleted, still tells that this was no success: it counts more failures of the
    Job than the Job itself.
    """
    job = view.job
    if job is None or view.pod is not None or view.state != SUCCEEDED or view.replica.id in status.succeeded_indexes:
        return False
    return status.restart_counts.get(job.metadata.uid, 0) > job.status.failed


def _has_lost_its_job(plan: Plan, view: View, had_all: bool) -> bool:
    """Somebody deleted it. Made anew alone, its replica would meet others that had begun without it.

    A gang's Jobs are deleted by us as well, whenever it goes back to the queue, or gets another place.
    """
    if not view.replica.role.restarts_together or view.state != RUNNING:
        return False
    if view.job is not None:
        return plan.gang is None and view.job.metadata.deletion_timestamp is not None
    return bool(view.pods) or had_all


def had_all(plan: Plan, status: TrainingStatus) -> bool:
    """Had all replicas of the present set their Jobs when the status was written? See `statusfigures._state_told`."""
    if conditions.has_true(status.conditions, conditions.RESTARTING):
        return False
    together = {role.replica_type for role in plan.roles if role.restarts_together}
    told = [each.replicas_states for each in status.replica_statuses if each.tf_replica_type in together]
    return bool(told) and all(UNKNOWN not in states for states in told)
