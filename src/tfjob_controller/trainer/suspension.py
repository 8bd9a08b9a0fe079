"""Which child Jobs are to be suspended, and when those that are may go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.core import Pod
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.actions import SetSuspend
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import is_finished, last_exit, training_container
from tfjob_controller.trainer.replicas import View, job_outcome


def toggled(views: Sequence[View], suspend: bool) -> Iterator[SetSuspend]:
    """`suspend`: nothing of the job may run. Jobs that are over, or will be made anew, stay as they are."""
    for view in views:
        job = view.job
        if job is None or job_outcome(job) or (view.must_redo and not view.replica.role.restarts_together):
            continue
        wanted = suspend or _would_run_again(view)
        if job.spec.suspend != wanted:
            yield SetSuspend(view.replica.name, wanted)


def _would_run_again(view: View) -> bool:
    """The program has succeeded but not its pod, which another container kept alive until it went away."""
    if view.state != replicas.SUCCEEDED:
        return False
    container = training_container(view.pod) if view.pod is not None else None
    exited = last_exit(container) if container is not None else None
    return exited is None or exited.exit_code != 0


def is_one_stopping(plan: Plan, views: Sequence[View], now: datetime) -> bool:
    """Those that go on together are resumed together, once no pod of before is left to be taken for a failed one.

    The Job controller may not have looked at a suspended Job yet: then its pod does not even know that it must go.
    """
    if not plan.restarts_together:
        return False
    lost_before = replicas.lost_before(now)
    return any(_is_stopping(view, pod, lost_before) for view in views for pod in view.pods)


def _is_stopping(view: View, pod: Pod, lost_before: str) -> bool:
    """Also a pod that was deleted and has ended, until it is gone or given up for lost: beside a Job that goes on
    again it would be taken for its failure.
    """
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        return deleted >= lost_before
    return view.job is not None and view.job.spec.suspend and not is_finished(pod)
