"""How often replicas were started again, also by pods and Jobs that are gone since.

The status maps the UID of a pod (restarts in place) or child Job (failed pods) to the highest count seen of it; the
sum never falls. UIDs that are gone keep their entry until there are many, then they are summed up under one empty key:
not at once, since a cache that starts anew may show an object once more.

How long a job waits before all of its replicas are started again, so that one that always fails does not do so all
day long.

The first restart waits for nothing: most failures are a lost node, or an eviction. Each further one waits twice as long
as the one before, up to the cap, counted from the failure: that is when the condition Restarting became True, or was
said anew of a set that failed before all of it ran.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import BatchJob
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.pods import FAILED, is_disrupted, training_container
from tfjob_controller.trainer.state.replica_state import (
    JOB_FAILED,
    ReplicaState,
    has_failed_while_suspended,
    job_outcome,
)
from tfjob_controller.util.timestamps import seconds_until

GONE = ""
# An entry takes some 50 bytes of the status; a job's status should not grow with its age.
MAX_GONE = 32


def next_restart_counts(states: Sequence[ReplicaState], counts: Mapping[str, int]) -> dict[str, int]:
    """The counts on record, raised by what is seen now."""
    raised = dict(counts)
    for state in states:
        for uid, count in _seen(state):
            if count > raised.get(uid, 0):
                raised[uid] = count
    if len(raised) <= MAX_GONE:
        return raised
    present = {state.job.metadata.uid for state in states if state.job is not None}
    present.update(pod.metadata.uid for state in states for pod in state.pods)
    return fold_counts(raised, present)


def are_failures_recorded(state: ReplicaState, counts: Mapping[str, int]) -> bool:
    """Do the counts on record know all failures of this replica's child Job?"""
    return state.job is None or counts.get(state.job.metadata.uid, 0) >= _failures(state, state.job)


def restarted_ids(states: Sequence[ReplicaState], counts: Mapping[str, int]) -> list[str]:
    """The replicas that were restarted since `counts` were recorded, in the plan's order."""
    return [state.replica.id for state in states if any(count > counts.get(uid, 0) for uid, count in _seen(state))]


def _seen(state: ReplicaState) -> list[tuple[str, int]]:
    """Counts above 0 of one replica, by UID."""
    seen = []
    if state.job is not None and (failed := _failures(state, state.job)):
        seen.append((state.job.metadata.uid, failed))
    for pod in state.pods:
        container = training_container(pod, state.replica.role.container)
        count = container.restart_count if container is not None else 0
        # A podFailurePolicy keeps disruptions out of the Job's own count.
        if state.replica.fails_itself and pod.status.phase == FAILED and is_disrupted(pod, None):
            count += 1
        if count:
            seen.append((pod.metadata.uid, count))
    return seen


def _failures(state: ReplicaState, job: BatchJob) -> int:
    """Pods of a Job that failed and were, or will be, replaced: not the one that it failed with."""
    if has_failed_while_suspended(job):
        return job.status.failed
    return job.status.failed + state.must_redo - (job_outcome(job) == JOB_FAILED and not state.must_redo)


def fold_counts(counts: dict[str, int], present: Collection[str]) -> dict[str, int]:
    """Those that are gone in one sum, once there are many."""
    deleted = [uid for uid in counts if uid not in present and uid != GONE]
    if len(deleted) <= MAX_GONE:
        return counts
    kept = {uid: count for uid, count in counts.items() if uid in present}
    return {GONE: counts.get(GONE, 0) + sum(counts[uid] for uid in deleted), **kept}


# As the kubelet's own for containers (pkg/kubelet, MaxContainerBackOff).
BASE_SECONDS, CAP_SECONDS = 10, 300
# More than this comes to the cap.
_DOUBLINGS = 10


def backoff_seconds(restarts: int) -> int:
    """Before that restart."""
    if restarts < 2:
        return 0
    return min(BASE_SECONDS << min(restarts - 2, _DOUBLINGS), CAP_SECONDS)


def seconds_until_restart(plan: Plan, status: TrainingStatus, now: datetime) -> float:
    """Until replicas may be made; 0 if they may be now."""
    restarting = conditions.find(status.conditions, conditions.RESTARTING)
    if not plan.replicas.restarts_together or restarting is None or restarting.status != conditions.TRUE:
        return 0.0
    return max(0.0, seconds_until(restarting.last_transition_time, backoff_seconds(status.restarts), now))
