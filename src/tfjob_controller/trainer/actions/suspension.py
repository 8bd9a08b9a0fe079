"""Which child Jobs are suspended and resumed, and what is cleaned up after the end of a job.

The clean-up policy `Running` (the default) stops running pods by suspending their child Job: the Job controller then
deletes the pod, and the Job stays for inspection. `All` also deletes finished pods. `None` stops nothing but a replica
that ended the job with an error and would be restarted. Child Jobs and Services always stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.api.tfjob.types import CLEAN_ALL, CLEAN_NONE, NEVER
from tfjob_controller.trainer.actions.model import SetSuspend
from tfjob_controller.trainer.gang.admission import must_suspend_gang
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.podgroup.podgroup import has_pod_group
from tfjob_controller.trainer.scaling.autoscaler import has_autoscaler
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.trainer.state.pods import (
    FAILED,
    PERMANENT_EXIT_CODES,
    all_containers_ended,
    is_finished,
    last_exit,
    training_container,
)
from tfjob_controller.trainer.state.replica_state import JOB_COMPLETE, JOB_SUSPENDED, ReplicaState, job_outcome
from tfjob_controller.util.timestamps import format_time, seconds_until


def suspension_changes(states: Sequence[ReplicaState], suspend: bool) -> Iterator[SetSuspend]:
    """Yields the Jobs to suspend or resume. Jobs that have ended or must be recreated are left unchanged."""
    for state in states:
        job = state.job
        if job is None or job_outcome(job) or (state.must_redo and not state.replica.role.restarts_together):
            continue
        wanted = suspend or _would_run_again(state)
        if job.spec.suspend != wanted:
            yield SetSuspend(state.replica.name, wanted)


def _would_run_again(state: ReplicaState) -> bool:
    """Reports whether the Job of a successful replica would run it again.

    This happens if another container kept the pod running until the pod was deleted.
    """
    if state.state != replica_state.SUCCEEDED or state.replica.role.job_name:
        return False
    container = training_container(state.pod, state.replica.role.container) if state.pod is not None else None
    exited = last_exit(container) if container is not None else None
    return exited is None or exited.exit_code != 0


def active_beside_suspended(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> Iterator[SetSuspend]:
    """Yields the Jobs to suspend because their pods are older than the suspension of a peer that restarts with them.

    Only some Jobs may have been suspended, because the controller was killed or a write was refused, or because a user
    suspended one. All of them are suspended before they are resumed, so that no pod runs beside a peer that starts
    again.
    """
    together = [state for state in states if plan.replicas.restarts_together and state.replica.role.restarts_together]
    stopped = max((_stopped_at(state, now) for state in together), default="")
    for state in together:
        if is_active(state.job) and any(_began_before(pod, stopped) for pod in state.pods):
            yield SetSuspend(state.replica.name, True)


def _stopped_at(state: ReplicaState, now: datetime) -> str:
    """Returns when the Job controller suspended the Job, or `now` if it has not yet; empty if the Job is not suspended.

    The Job of a successful replica counts as not suspended.
    """
    job = state.job
    if (
        job is None
        or not job.spec.suspend
        or state.state == replica_state.SUCCEEDED
        or job_outcome(job) == JOB_COMPLETE
    ):
        return ""
    suspensions = (each for each in job.status.conditions if each.type == JOB_SUSPENDED and each.status == "True")
    return next((each.last_transition_time or "" for each in suspensions), format_time(now))


def _began_before(pod: Pod, moment: str) -> bool:
    return not is_finished(pod) and (pod.metadata.creation_timestamp or "") < moment


def is_any_stopping(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> bool:
    """Reports whether a pod of a suspended set still stops, or is not being stopped yet by the Job controller.

    The Jobs of a set are resumed together after that. A pod that stops beside a resumed Job would count as failed.
    """
    if not plan.replicas.restarts_together:
        return False
    lost_before = replica_state.lost_before(now)
    return any(_is_stopping(state, pod, lost_before) for state in states for pod in state.pods)


def _is_stopping(state: ReplicaState, pod: Pod, lost_before: str) -> bool:
    """Reports whether the pod is being deleted, also if it has ended, unless it counts as lost."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        return deleted >= lost_before
    return state.job is not None and state.job.spec.suspend and not is_finished(pod)


def jobs_to_suspend(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> list[str]:
    """Returns the names of the child Jobs that the clean-up policy suspends."""
    ending = _jobs_that_end(states)
    if plan.policy.clean_pod_policy == CLEAN_NONE:
        candidates = [
            state.replica.name for state in states if state.replica.decides and state.state == replica_state.FAILED
        ]
    else:
        candidates = list(observed.jobs)
    jobs = ((name, observed.jobs.get(name)) for name in candidates)
    return [name for name, job in jobs if job is not None and job.metadata.uid not in ending and is_active(job)]


def _jobs_that_end(states: Sequence[ReplicaState]) -> set[str]:
    """Returns the UIDs of Jobs that end without being suspended: a replica fails its Job, or all have succeeded."""
    ends: dict[str, list[ReplicaState | None]] = {}
    for state in states:
        if state.job is not None:
            ends.setdefault(state.job.metadata.uid, []).append(state if _ends_by_itself(state) else None)
    return {
        uid
        for uid, replicas in ends.items()
        if all(replicas) or any(each is not None and each.state != replica_state.SUCCEEDED for each in replicas)
    }


def active_jobs(jobs: Iterable[BatchJob]) -> list[str]:
    """Returns the names of the Jobs that are active."""
    return [job.metadata.name for job in jobs if is_active(job)]


def is_active(job: BatchJob | None) -> bool:
    """Reports whether the Job exists, is not suspended and has not ended."""
    return job is not None and not job.spec.suspend and not job_outcome(job)


def _ends_by_itself(state: ReplicaState) -> bool:
    """Reports whether all containers of the pod have ended and the Job will end without being suspended.

    Suspending such a Job would lose its result, and the pod with its log: a kubelet reports the phase of a pod some
    time after its containers have ended, and until then the Job controller would delete the pod.
    """
    pod = state.pod
    if pod is None or not all_containers_ended(pod):
        return False
    if state.state == replica_state.SUCCEEDED:
        return pod.status.phase != FAILED
    return _fails_its_job(state) or _is_about_to_fail(state)


def _fails_its_job(state: ReplicaState) -> bool:
    """Reports whether the Job creates no other pod after this one."""
    role = state.replica.role
    permanent = state.exited is not None and state.exited.exit_code in PERMANENT_EXIT_CODES
    return (role.restarts_together and not role.is_elastic) or (state.replica.fails_itself and permanent)


def finished_pods_to_delete(plan: Plan, observed: ObservedState) -> list[Pod]:
    """Returns the finished pods that the clean-up policy deletes."""
    if plan.policy.clean_pod_policy != CLEAN_ALL:
        return []
    return [pod for pod in _pods(observed) if is_finished(pod) and pod.metadata.deletion_timestamp is None]


def is_cleaned_up(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> bool:
    """Reports whether nothing is left to suspend or delete, and all stopped pods are deleted or being deleted.

    A pod that will fail by itself must have done so, since one of its containers might be restarted instead.
    """
    if jobs_to_suspend(plan, observed, states) or any(_is_about_to_fail(state) for state in states):
        return False
    if must_suspend_gang(observed) or has_pod_group(observed) or has_autoscaler(observed):
        return False
    if plan.policy.clean_pod_policy == CLEAN_NONE:
        return True
    keeps_finished = plan.policy.clean_pod_policy != CLEAN_ALL
    return all(
        pod.metadata.deletion_timestamp is not None or (keeps_finished and all_containers_ended(pod))
        for pod in _pods(observed)
    )


def _is_about_to_fail(state: ReplicaState) -> bool:
    """Reports whether the pod's containers have ended for good, but its phase is not Failed yet."""
    pod = state.pod
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    is_restarted = pod.spec.restart_policy != NEVER and not _fails_its_job(state)
    return state.state != replica_state.SUCCEEDED and not is_restarted and all_containers_ended(pod)


def _pods(observed: ObservedState) -> Iterator[Pod]:
    for pods in observed.pods.values():
        yield from pods


def ttl_seconds_left(limit: int | None, ended: str | None, now: datetime) -> float | None:
    """Returns how long a finished job is still kept; 0 or less if it must be deleted, None if it is kept forever.

    An invalid limit counts as none, so that the user can read why the job failed.
    """
    if limit is None or not 0 <= limit <= INT32_MAX or ended is None:
        return None
    return seconds_until(ended, limit, now)
