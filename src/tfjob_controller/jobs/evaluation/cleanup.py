"""The clean-up after the end of a job: the children to stop and to delete, until no container can start any more.

After the end of a job, every Job that has not ended and may start a pod is suspended. The clean-up policy `Running`
(the default) also stops running pods in this way. `All` also deletes finished pods. `None` keeps what runs, and only
that: a pod whose program has not started yet is stopped. Child Jobs and their Services always stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import BatchJob, Pod, Service
from tfjob_controller.api.common.policies import CLEAN_ALL, CLEAN_NONE
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.jobs.gang.admission import must_suspend_gang
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.observed import ObservedState, job_outcome
from tfjob_controller.jobs.state.pods import has_unstarted_container, is_finished, was_started
from tfjob_controller.jobs.state.replica_state import ReplicaState, has_ended_well, seconds_until_removal
from tfjob_controller.util.timestamps import parse_time_or_none, seconds_until

# How long the Job of a pod that should have ended is waited for. Then it is suspended like the others.
SUSPENDED_AFTER_SECONDS = 10.0


def jobs_to_suspend(
    plan: Plan, observed: ObservedState, states: Sequence[ReplicaState], now: datetime, ended: str | None = None
) -> list[str]:
    """Returns the names of the child Jobs that are suspended after the end of the job.

    `ended` is the completionTime of a job that is cleaned up.
    """
    if plan.policy.is_strict and plan.policy.clean_pod_policy == CLEAN_NONE:
        return []
    by_job: dict[str, list[ReplicaState]] = {}
    for state in states:
        by_job.setdefault(state.replica.name, []).append(state)
        if state.job is not None and state.replica.role.job_name:
            by_job[state.replica.name] = [other for other in states if other.replica.role is state.replica.role]
    return [
        name
        for name, job in observed.jobs.items()
        if is_active(job) and not _is_kept(plan, by_job.get(name, ()), now, ended)
    ]


def _is_kept(plan: Plan, states: Sequence[ReplicaState], now: datetime, ended: str | None) -> bool:
    """Reports whether an active Job needs no suspension, now or ever.

    Suspending a Job whose pod ends just now would lose its result, and the pod with its log: a kubelet reports the
    phase of a pod some time after its containers have ended, and until then the Job controller would delete the pod.
    """
    replaces_pods = any(state.replica.role.is_elastic for state in states)
    # Of a Job that replaces failed pods none may be left that can fail.
    if any(_is_ending(state, now) for state in states) and not (replaces_pods and any(map(_may_fail, states))):
        return True
    if states and not replaces_pods and all(_has_ended(state) for state in states):
        return True
    # A Job that has started all of its pods starts no other. In a pod that the job leaves, no program starts any more.
    is_settled = not replaces_pods and all(_has_run(state) and not _starts_again(state, ended) for state in states)
    return plan.policy.clean_pod_policy == CLEAN_NONE and bool(states) and is_settled


def _has_run(state: ReplicaState) -> bool:
    """Reports whether the program has started or, in a pod that has ended, never will."""
    return _has_ended(state) or (state.pod is not None and was_started(state.pod, state.replica.role.container))


def _starts_again(state: ReplicaState, ended: str | None) -> bool:
    """Reports whether the kubelet starts the program again, or has done so after the job ended."""
    pod, exited = state.pod, state.exited
    has_ended_job = state.state == replica_state.FAILED and state.replica.decides
    if pod is None or exited is None:
        return False
    if state.is_up and not has_ended_job:
        return ended is not None and (exited.finished_at or "") > ended
    return replica_state.is_restarted_in_place(state.replica, pod, exited)


def _may_start_a_pod(job: BatchJob) -> bool:
    """Reports whether the Job is suspended, and its status does not show it yet."""
    if not job.spec.suspend or job.metadata.deletion_timestamp is not None or job_outcome(job):
        return False
    return not any(condition.type == "Suspended" and condition.status == "True" for condition in job.status.conditions)


def _has_ended(state: ReplicaState) -> bool:
    return state.pod is not None and is_finished(state.pod)


def _may_fail(state: ReplicaState) -> bool:
    return state.pod is None or not has_ended_well(state.pod)


def _is_ending(state: ReplicaState, now: datetime) -> bool:
    """Reports whether the training container has ended for good, and its pod will end within its grace period."""
    pod = state.pod
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    left = seconds_until_removal(state, now)
    return left is not None and left > -SUSPENDED_AFTER_SECONDS


def is_active(job: BatchJob | None) -> bool:
    """Reports whether the Job exists, is not suspended and has not ended."""
    return job is not None and not job.spec.suspend and not job_outcome(job)


def finished_pods_to_delete(plan: Plan, observed: ObservedState) -> list[Pod]:
    """Returns the finished pods that the clean-up policy deletes."""
    if plan.policy.clean_pod_policy != CLEAN_ALL:
        return []
    return [pod for pod in _pods(observed) if is_finished(pod) and pod.metadata.deletion_timestamp is None]


def services_to_delete(plan: Plan, observed: ObservedState, *, is_suspended: bool = False) -> list[Service]:
    """Returns the Services that are deleted with the pods that they belong to, if pods carry the replicas.

    Those of child Jobs stay. A Service whose pod has ended stays with it.
    """
    policy = plan.policy.clean_pod_policy
    if plan.carrier is None or (policy == CLEAN_NONE and not is_suspended):
        return []
    keeps_finished = policy != CLEAN_ALL and not is_suspended
    kept = {name for name, pods in observed.pods.items() if keeps_finished and all(map(is_finished, pods))}
    return [
        service
        for name, service in observed.services.items()
        if name not in kept and service.metadata.deletion_timestamp is None
    ]


def is_cleaned_up(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState], now: datetime) -> bool:
    """Reports whether nothing is left to suspend or delete, and no container can start any more.

    The Job controller must have confirmed each suspension: while its cache is behind, it may still start a pod. A pod
    that is being deleted may still run its programs to their end, but its kubelet must not be starting it.
    """
    if jobs_to_suspend(plan, observed, states, now) or any(_is_ending(state, now) for state in states):
        return False
    if any(map(_may_start_a_pod, observed.jobs.values())) or services_to_delete(plan, observed):
        return False
    if must_suspend_gang(observed) or observed.has_pod_group or observed.has_autoscaler:
        return False
    keeps_finished = plan.policy.clean_pod_policy != CLEAN_ALL
    return all(_is_stopped(pod, now) or (keeps_finished and is_finished(pod)) for pod in _stopped_pods(plan, observed))


def seconds_until_stopped(plan: Plan, observed: ObservedState, now: datetime) -> float | None:
    """Returns when the first pod that is being deleted can start no container any more; None if none can."""
    ends = (pod.metadata.deletion_timestamp for pod in _stopped_pods(plan, observed) if not _is_stopped(pod, now))
    # One second is added, since timestamps have whole seconds.
    seconds = replica_state.LOST_AFTER_SECONDS + 1
    return min((seconds_until(end, seconds, now) for end in ends if end is not None), default=None)


def _stopped_pods(plan: Plan, observed: ObservedState) -> Iterator[Pod]:
    """Yields the pods that the end of the job stops: those of suspended Jobs if the policy keeps what runs."""
    if plan.policy.clean_pod_policy != CLEAN_NONE:
        yield from _pods(observed)
        return
    for name, job in observed.jobs.items():
        if job.spec.suspend:
            yield from observed.pods.get(name, ())


def _is_stopped(pod: Pod, now: datetime) -> bool:
    """Reports whether the pod is being deleted and starts no container any more.

    A kubelet that is starting a pod finds its deletion only afterwards, even if the grace period is over by then. A pod
    that is lost starts nothing.
    """
    if pod.metadata.deletion_timestamp is None:
        return False
    return not has_unstarted_container(pod) or replica_state.is_lost(pod, replica_state.lost_before(now))


def _pods(observed: ObservedState) -> Iterator[Pod]:
    for pods in observed.pods.values():
        yield from pods


def ttl_seconds_left(limit: int | None, ended: str | None, now: datetime) -> float | None:
    """Returns how long a finished job is still kept; 0 or less if it must be deleted, None if it is kept forever.

    An invalid limit counts as none, so that the user can read why the job failed, and so does an invalid time.
    """
    if limit is None or not 0 <= limit <= INT32_MAX or ended is None or parse_time_or_none(ended) is None:
        return None
    return seconds_until(ended, limit, now)
