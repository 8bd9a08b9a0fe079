"""Restart attempts: which children are of an earlier one, and what must be gone before another child is created.

With `resize: Restart` every replica must know the exact cluster, so the Jobs and pods of such a job carry the restart
attempt in a label, and the status has the current one and the number of workers that TF_CONFIG lists in it
(`scaling.attempt`, `scaling.members`). When another number of workers is due, the status is written first, with the
next attempt. Children of another attempt are stale: they are deleted with their pods, their exit codes do not count,
and no child is created before all of them are gone. A resize during a resize is one more attempt. Services stay, and so
do the Jobs of replicas that have succeeded, since they run nothing and keep the logs. Jobs whose replicas restart
together do the same after a retryable failure: their attempt is the number of their restarts, and earlier successes do
not count any more. An elastic job has an attempt number of its own (`scaling.attempt`), since replacements of single
replicas count as restarts, too. A gang counts the workers that have an assignment, so one that started with some of its
workers is restarted when more are assigned.

A replica never has two running pods: its next Job is created once the pods of the Job before have ended or are gone. A
Job that is deleted in the foreground exists as long as its pods. A Job that is deleted otherwise is gone at once, and
the garbage collector deletes its pods some time later, so the controller waits for these pods, too. It does not wait
for pods that were lost with their node (`without_lost_pods`), whose end no kubelet reports. A pod without its Job
(`kubectl delete job --cascade=orphan`) is neither counted nor deleted, but the controller waits for its end, since it
runs under the replica's name. A StatefulSet waits for a foreign pod of that name in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.jobs.naming import RESTART_ATTEMPT
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, ObservedState, job_outcome
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.trainingjob import Scaling
from tfjob_controller.kube.meta import Object
from tfjob_controller.util.timestamps import seconds_until


@dataclass(frozen=True, slots=True)
class StaleChildren:
    """Children of earlier attempts: the `jobs` to delete; `are_deleted` if neither Jobs nor pods are left."""

    jobs: Sequence[BatchJob]
    are_deleted: bool


def is_of_attempt(plan: Plan, obj: Object) -> bool:
    return not plan.has_restart_attempts or obj.metadata.labels.get(RESTART_ATTEMPT) == str(plan.restart_attempt)


def without_lost_pods(plan: Plan, observed: ObservedState, now: datetime) -> ObservedState:
    """Returns the state without pods of earlier Jobs that were lost with their node, whose end will not be reported."""
    moment = replica_state.lost_before(now)
    going = {name for name, pods in observed.pods.items() if any(replica_state.is_lost(pod, moment) for pod in pods)}
    if not going:
        return observed
    pods = {
        name: [
            pod
            for pod in pods
            if not (replica_state.is_lost(pod, moment) and _is_of_earlier_job(plan, observed, name, pod))
        ]
        if name in going
        else pods
        for name, pods in observed.pods.items()
    }
    return dataclasses.replace(observed, pods=pods)


def _is_of_earlier_job(plan: Plan, observed: ObservedState, name: str, pod: Pod) -> bool:
    """Reports whether the pod's Job is gone, is replaced, or is of an earlier attempt of a set."""
    job = observed.jobs.get(name)
    return job is None or is_replaced_job(plan, job) or not _is_of_current_attempt(plan, pod)


def is_replaced_job(plan: Plan, job: BatchJob) -> bool:
    """Reports whether a Job is of an earlier attempt, or was suspended and is being deleted."""
    is_stopped = job.spec.suspend and job.metadata.deletion_timestamp is not None
    return is_stopped or not _is_of_current_attempt(plan, job)


def seconds_until_pod_lost(plan: Plan, observed: ObservedState, now: datetime) -> float | None:
    """Returns when the first pod of an earlier Job will count as lost; None if there is none."""
    going = (
        pod.metadata.deletion_timestamp
        for name, pods in observed.pods.items()
        for pod in pods
        if pod.metadata.deletion_timestamp is not None
        and not is_finished(pod)
        and _is_of_earlier_job(plan, observed, name, pod)
    )
    # One second is added, since timestamps have whole seconds.
    left = (seconds_until(time, replica_state.LOST_AFTER_SECONDS + 1, now) for time in going)
    return min((seconds for seconds in left if seconds > 0), default=None)


def seconds_until_held_up(observed: ObservedState, now: datetime) -> float | None:
    """Returns when the first deletion of a Job will count as held up by finalizers; None if none is being deleted."""
    deleted = (job.metadata.deletion_timestamp for job in observed.jobs.values())
    left = (seconds_until(time, replica_state.PATIENCE_SECONDS + 1, now) for time in deleted if time is not None)
    return min((seconds for seconds in left if seconds > 0), default=None)


def of_current_attempt(plan: Plan, observed: ObservedState) -> ObservedState:
    """Returns the state without Jobs and pods of earlier attempts, if all replicas are restarted after a failure."""
    if not plan.replicas.restarts_together or not plan.restart_attempt:
        return observed
    return dataclasses.replace(
        observed,
        jobs={name: job for name, job in observed.jobs.items() if _is_of_current_attempt(plan, job)},
        pods={name: [pod for pod in pods if _is_of_current_attempt(plan, pod)] for name, pods in observed.pods.items()},
    )


def _is_of_current_attempt(plan: Plan, obj: Object) -> bool:
    """Reports whether the object is of the current attempt, or of a step that is not restarted with the others."""
    return RESTART_ATTEMPT not in obj.metadata.labels or is_of_attempt(plan, obj)


def stale_children(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> StaleChildren:
    """Returns the stale children of a job that is no gang."""
    done = {state.replica.name for state in states if state.state == replica_state.SUCCEEDED}
    stale = [
        job
        for name, job in observed.jobs.items()
        if name in plan.replicas.by_name
        and not is_of_attempt(plan, job)
        and not (name in done and job_outcome(job) == JOB_COMPLETE)
    ]
    pods = (pod for of_job in observed.pods.values() for pod in of_job)
    left_over = any(not is_of_attempt(plan, pod) and not is_finished(pod) for pod in pods)
    return StaleChildren(stale, not stale and not left_over)


def attempt_members(plan: Plan, states: Sequence[ReplicaState], assigned: Collection[str] | None) -> int:
    """Returns how many workers of the attempt know each other, as TF_CONFIG lists them.

    `assigned` has the names of replicas with an assignment; None if replicas need none. A worker that was listed in
    this attempt stays listed, so that no worker is restarted because a node was lost.
    """
    workers = [state for state in states if state.replica.role.name == plan.scaling.role]
    if assigned is None:
        return len(workers)
    known = [state for state in workers if state.replica.name in assigned or _was_known(plan, state)]
    return max((state.replica.index + 1 for state in known), default=0)


def _was_known(plan: Plan, state: ReplicaState) -> bool:
    return state.state == replica_state.SUCCEEDED or (state.job is not None and is_of_attempt(plan, state.job))


def is_scaling_unrecorded(plan: Plan, scaling: Scaling | None, members: int) -> bool:
    """Reports whether the status must have the number of workers before children are created for them."""
    return plan.scaling.resize == BY_RESTART and (scaling is None or scaling.members != members)


def next_attempt(scaling: Scaling, members: int) -> Scaling:
    """Returns the status that must be written before children for this number of workers may be created."""
    was_made = scaling.members > 0
    return replace(scaling, attempt=scaling.attempt + was_made, members=members)


def can_create_job(observed: ObservedState, name: str) -> bool:
    """Reports whether a Job of that name may be created. `observed` has no lost pods."""
    return name not in observed.jobs and _in_the_way(observed, name) is None


def _in_the_way(observed: ObservedState, name: str) -> Pod | None:
    pods = chain(observed.pods.get(name, ()), observed.orphans.get(name, ()))
    return next((pod for pod in pods if not is_finished(pod)), None)


def blocking_pod_message(observed: ObservedState, state: ReplicaState, now: datetime) -> str:
    """Returns for which pod of an earlier Job, or for which Job, a replica waits; empty if there is none."""
    name, job = state.replica.name, observed.jobs.get(state.replica.name)
    is_overdue = job is not None and _is_overdue(job, now)
    if state.state == replica_state.SUCCEEDED or not (job is None or job.spec.suspend or is_overdue):
        return ""
    pod = _in_the_way(observed, name)
    if pod is None:
        held = next((pod.metadata.name for pod in observed.pods.get(name, ())), "")
        message = f"waits for Job {state.replica.job_name} to be deleted, which finalizers hold up"
        return (f"{message}: see those of pod {held}" if held else message) if is_overdue else ""
    if pod in observed.orphans.get(name, ()):
        return f"waits for pod {pod.metadata.name}, which no Job controls any more, to end; or delete it"
    return (
        f"waits for pod {pod.metadata.name} of its {'suspended' if job and job.spec.suspend else 'deleted'} Job to end"
    )


def _is_overdue(job: BatchJob, now: datetime) -> bool:
    deleted = job.metadata.deletion_timestamp
    return deleted is not None and seconds_until(deleted, replica_state.PATIENCE_SECONDS, now) <= 0
