"""How often replicas were started again, also by pods and Jobs that are gone since.

The status maps the UID of a pod (restarts in place) or child Job (failed pods) to the highest count seen of it; the
sum never falls. UIDs that are gone keep their entry until there are many, then they are summed up under one empty key:
not at once, since a cache that starts anew may show an object once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tfjob_controller.api.core import Job
from tfjob_controller.trainer.pods import FAILED, is_disrupted, training_container
from tfjob_controller.trainer.replicas import JOB_FAILED, View, has_failed_suspended, job_outcome

GONE = ""
# An entry takes some 50 bytes of the status; a job's status should not grow with its age.
MAX_GONE = 32


def next_restart_counts(views: Sequence[View], counts: Mapping[str, int]) -> dict[str, int]:
    """The counts on record, raised by what is seen now."""
    raised = dict(counts)
    for view in views:
        for uid, count in _seen(view):
            if count > raised.get(uid, 0):
                raised[uid] = count
    if len(raised) <= MAX_GONE:
        return raised
    present = {view.job.metadata.uid for view in views if view.job is not None}
    present.update(pod.metadata.uid for view in views for pod in view.pods)
    return folded(raised, present)


def is_recorded(view: View, counts: Mapping[str, int]) -> bool:
    """Do the counts on record know all failures of this replica's child Job?"""
    return view.job is None or counts.get(view.job.metadata.uid, 0) >= _failures(view, view.job)


def restarted_ids(views: Sequence[View], counts: Mapping[str, int]) -> list[str]:
    """The replicas that were restarted since `counts` were recorded, in the plan's order."""
    return [view.replica.id for view in views if any(count > counts.get(uid, 0) for uid, count in _seen(view))]


def _seen(view: View) -> list[tuple[str, int]]:
    """Counts above 0 of one replica, by UID."""
    seen = []
    if view.job is not None and (failed := _failures(view, view.job)):
        seen.append((view.job.metadata.uid, failed))
    for pod in view.pods:
        container = training_container(pod, view.replica.role.container)
        count = container.restart_count if container is not None else 0
        # A podFailurePolicy keeps disruptions out of the Job's own count.
        if view.replica.fails_itself and pod.status.phase == FAILED and is_disrupted(pod, None):
            count += 1
        if count:
            seen.append((pod.metadata.uid, count))
    return seen


def _failures(view: View, job: Job) -> int:
    """Pods of a Job that failed and were, or will be, replaced: not the one that it failed with."""
    if has_failed_suspended(job):
        return job.status.failed
    return job.status.failed + view.must_redo - (job_outcome(job) == JOB_FAILED and not view.must_redo)


def folded(counts: dict[str, int], present: Collection[str]) -> dict[str, int]:
    """Those that are gone in one sum, once there are many."""
    gone = [uid for uid in counts if uid not in present and uid != GONE]
    if len(gone) <= MAX_GONE:
        return counts
    kept = {uid: count for uid, count in counts.items() if uid in present}
    return {GONE: counts.get(GONE, 0) + sum(counts[uid] for uid in gone), **kept}
