"""Restarts: how many there were, how long the next one waits, and which children are of an earlier attempt.

Counts. The status maps the UID of a pod (restarts in place) or child Job (failed pods) to the highest count seen of it;
the sum never falls. UIDs of deleted objects keep their entry until there are many, and are then summed up under one
empty key: not at once, since a cache that starts again may show an object once more.

Back-off. The first restart of all replicas waits for nothing: most failures are a lost node, or an eviction. Each
further one waits twice as long as the one before, up to the cap, counted from the failure: that is when the condition
Restarting became True, or was set again for a set that failed before all of it ran.

Attempts. With `resize: Restart` every replica must know the exact cluster, so the Jobs and pods of such a job carry the
restart attempt in a label, and the status has the current one and the number of workers that TF_CONFIG lists in it
(`scaling.generation`, `scaling.members`). When another number of workers is due, the status is written first, with the
next attempt. Children of another attempt are stale: they are deleted with their pods, their exit codes do not count,
and no child is created before all of them are gone. A resize during a resize is only one attempt more. Services stay,
and so do the Jobs of replicas that have succeeded: they run nothing, and keep the logs. Jobs whose replicas restart
together do the same after a retryable failure: their attempt is the count of their restarts, and earlier successes
count no more. A gang counts the workers that have an assignment, so one that starts with a part of them is restarted
when more come.

A replica never has two pods that run: its next Job is created once the pods of the one before have ended or are gone.
A Job that is deleted in the foreground stays as long as its pods do. One that is deleted otherwise is gone at once, and
the garbage collector deletes its pods some time later, so these are waited for by themselves; but not pods that were
lost with their node (`without_lost_pods`), whose end nobody will report. A pod that its Job left behind
(`kubectl delete job --cascade=orphan`) is neither counted nor deleted. But it runs under the replica's name, and so it
is waited for as well, as a StatefulSet waits for a pod of that name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.status import ScalingStatus, TrainingStatus
from tfjob_controller.api.tfjob.types import BY_RESTART, WORKER
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.naming import RESTART_ATTEMPT
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.trainer.state.pods import FAILED, is_disrupted, is_finished, training_container
from tfjob_controller.trainer.state.replica_state import (
    JOB_COMPLETE,
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


@dataclass(frozen=True, slots=True)
class StaleChildren:
    """Children of earlier attempts. `jobs` are to be deleted; `are_deleted` if neither Jobs nor pods are left."""

    jobs: Sequence[BatchJob]
    are_deleted: bool


def is_of_attempt(plan: Plan, obj: Object) -> bool:
    return not plan.has_restart_attempts or obj.metadata.labels.get(RESTART_ATTEMPT) == str(plan.restart_attempt)


def without_lost_pods(plan: Plan, observed: ObservedState, now: datetime) -> ObservedState:
    """Without pods of before whose node is gone: nobody will ever say that they have ended, so nobody waits for it."""
    moment = replica_state.lost_before(now)
    going = {name for name, some in observed.pods.items() if any(replica_state.is_lost(pod, moment) for pod in some)}
    if not going:
        return observed
    pods = {
        name: [
            pod for pod in some if not (replica_state.is_lost(pod, moment) and _is_of_before(plan, observed, name, pod))
        ]
        if name in going
        else some
        for name, some in observed.pods.items()
    }
    return dataclasses.replace(observed, pods=pods)


def _is_of_before(plan: Plan, observed: ObservedState, name: str, pod: Pod) -> bool:
    """Its Job is gone, or is of another attempt where all are restarted together."""
    return name not in observed.jobs or (
        plan.replicas.restarts_together and plan.restart_attempt > 0 and not _is_now(plan, pod)
    )


def seconds_until_pod_lost(plan: Plan, observed: ObservedState, now: datetime) -> float | None:
    """When the first pod of before will be given up for lost; None if none can be."""
    going = (
        pod.metadata.deletion_timestamp
        for name, some in observed.pods.items()
        for pod in some
        if pod.metadata.deletion_timestamp is not None
        and not is_finished(pod)
        and _is_of_before(plan, observed, name, pod)
    )
    # One more: times are whole seconds.
    left = (seconds_until(each, replica_state.LOST_AFTER_SECONDS + 1, now) for each in going)
    return min((seconds for seconds in left if seconds > 0), default=None)


def of_current_attempt(plan: Plan, observed: ObservedState) -> ObservedState:
    """Where all are restarted because one has failed: without those of before, who have had their say."""
    if not plan.replicas.restarts_together or not plan.restart_attempt:
        return observed
    return dataclasses.replace(
        observed,
        jobs={name: job for name, job in observed.jobs.items() if _is_now(plan, job)},
        pods={name: [pod for pod in pods if _is_now(plan, pod)] for name, pods in observed.pods.items()},
    )


def _is_now(plan: Plan, obj: Object) -> bool:
    """What has no attempt belongs to a step that is not restarted with the others."""
    return RESTART_ATTEMPT not in obj.metadata.labels or is_of_attempt(plan, obj)


def stale_children(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> StaleChildren:
    """For a job that is no gang."""
    done = {state.replica.name for state in states if state.state == replica_state.SUCCEEDED}
    stale = [
        job
        for name, job in observed.jobs.items()
        if name in plan.replicas.by_name
        and not is_of_attempt(plan, job)
        and not (name in done and job_outcome(job) == JOB_COMPLETE)
    ]
    pods = (pod for some in observed.pods.values() for pod in some)
    left_over = any(not is_of_attempt(plan, pod) and not is_finished(pod) for pod in pods)
    return StaleChildren(stale, not stale and not left_over)


def tf_config_workers(plan: Plan, states: Sequence[ReplicaState], assigned: Collection[str] | None) -> int:
    """How many workers TF_CONFIG should list. `assigned`: the names of replicas with an assignment; None if they need
    none.

    One that was known in this attempt stays so: nobody is restarted because a node was lost.
    """
    workers = [state for state in states if state.replica.role.replica_type == WORKER]
    if assigned is None:
        return len(workers)
    known = [state for state in workers if state.replica.name in assigned or _was_known(plan, state)]
    return max((state.replica.index + 1 for state in known), default=0)


def _was_known(plan: Plan, state: ReplicaState) -> bool:
    return state.state == replica_state.SUCCEEDED or (state.job is not None and is_of_attempt(plan, state.job))


def is_scaling_unrecorded(plan: Plan, scaling: ScalingStatus | None, members: int) -> bool:
    """Must the status be written first? Nothing is created before it knows for how many workers."""
    return plan.scaling.resize == BY_RESTART and (scaling is None or scaling.members != members)


def next_attempt(scaling: ScalingStatus, members: int) -> ScalingStatus:
    """What is on record when the children for so many workers may be made."""
    was_made = scaling.members > 0
    return replace(scaling, generation=scaling.generation + was_made, members=members)


def can_create_job(observed: ObservedState, name: str) -> bool:
    """May a Job be made under that name? `observed` is without lost pods."""
    return name not in observed.jobs and _in_the_way(observed, name) is None


def _in_the_way(observed: ObservedState, name: str) -> Pod | None:
    pods = chain(observed.pods.get(name, ()), observed.orphans.get(name, ()))
    return next((pod for pod in pods if not is_finished(pod)), None)


def blocking_pod_message(observed: ObservedState, state: ReplicaState) -> str:
    """What a replica without a Job waits for, in words; empty if there is no such pod."""
    name = state.replica.name
    pod = _in_the_way(observed, name) if name not in observed.jobs and state.state != replica_state.SUCCEEDED else None
    if pod is None:
        return ""
    if pod in observed.orphans.get(name, ()):
        return f"waits for pod {pod.metadata.name}, which no Job controls any more, to end; or delete it"
    return f"waits for pod {pod.metadata.name} of its deleted Job to end"
