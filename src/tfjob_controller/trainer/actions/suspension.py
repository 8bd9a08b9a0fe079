"""Which child Jobs are suspended and resumed, and what is cleaned up after the end of a job.

The clean-up policy `Running` (the default) stops running pods by suspending their child Job: the Job controller then
deletes the pod, and the Job stays for inspection. `All` deletes the finished pods too. `None` leaves all as it is,
except for a replica that ended the job with an error and would only be restarted. Child Jobs and Services always stay.
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
    """`suspend`: nothing of the job may run. Jobs that are over, or will be recreated, stay as they are."""
    for state in states:
        job = state.job
        if job is None or job_outcome(job) or (state.must_redo and not state.replica.role.restarts_together):
            continue
        wanted = suspend or _would_run_again(state)
        if job.spec.suspend != wanted:
            yield SetSuspend(state.replica.name, wanted)


def _would_run_again(state: ReplicaState) -> bool:
    """The program has succeeded but not its pod, which another container kept alive until it went away."""
    if state.state != replica_state.SUCCEEDED or state.replica.role.job_name:
        return False
    container = training_container(state.pod, state.replica.role.container) if state.pod is not None else None
    exited = last_exit(container) if container is not None else None
    return exited is None or exited.exit_code != 0


def active_beside_suspended(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> Iterator[SetSuspend]:
    """Of a job that is not suspended: those of a set that go on since before one of their fellows was stopped.

    The controller may have been killed, or a write refused, when only some were stopped, and the job be resumed by
    then; or somebody stopped one alone. So all are stopped first, and none goes on beside one that starts anew.
    """
    together = [state for state in states if plan.replicas.restarts_together and state.replica.role.restarts_together]
    stopped = max((_stopped_at(state, now) for state in together), default="")
    for state in together:
        if is_active(state.job) and any(_began_before(pod, stopped) for pod in state.pods):
            yield SetSuspend(state.replica.name, True)


def _stopped_at(state: ReplicaState, now: datetime) -> str:
    """When the Job controller stopped it: now, if it has not looked yet. Empty if it was not, or has succeeded."""
    job = state.job
    if (
        job is None
        or not job.spec.suspend
        or state.state == replica_state.SUCCEEDED
        or job_outcome(job) == JOB_COMPLETE
    ):
        return ""
    said = (each for each in job.status.conditions if each.type == JOB_SUSPENDED and each.status == "True")
    return next((each.last_transition_time or "" for each in said), format_time(now))


def _began_before(pod: Pod, moment: str) -> bool:
    return not is_finished(pod) and (pod.metadata.creation_timestamp or "") < moment


def is_any_stopping(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> bool:
    """Those that go on together are resumed together, once no pod of before is left to be taken for a failed one.

    The Job controller may not have looked at a suspended Job yet: then its pod does not even know that it must go.
    """
    if not plan.replicas.restarts_together:
        return False
    lost_before = replica_state.lost_before(now)
    return any(_is_stopping(state, pod, lost_before) for state in states for pod in state.pods)


def _is_stopping(state: ReplicaState, pod: Pod, lost_before: str) -> bool:
    """Also a pod that was deleted and has ended, until it is gone or given up for lost: beside a Job that goes on
    again it would be taken for its failure.
    """
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        return deleted >= lost_before
    return state.job is not None and state.job.spec.suspend and not is_finished(pod)


def jobs_to_suspend(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> list[str]:
    """Names of the child Jobs that must be suspended, in order."""
    ending = {state.job.metadata.uid for state in states if state.job is not None and _ends_by_itself(state)}
    if plan.policy.clean_pod_policy == CLEAN_NONE:
        candidates = [
            state.replica.name for state in states if state.replica.decides and state.state == replica_state.FAILED
        ]
    else:
        candidates = list(observed.jobs)
    jobs = ((name, observed.jobs.get(name)) for name in candidates)
    return [name for name, job in jobs if job is not None and job.metadata.uid not in ending and is_active(job)]


def active_jobs(jobs: Iterable[BatchJob]) -> list[str]:
    """Names of the child Jobs to suspend where no plan says more of them: nobody will look after their pods."""
    return [job.metadata.name for job in jobs if is_active(job)]


def is_active(job: BatchJob | None) -> bool:
    """It is neither suspended nor over."""
    return job is not None and not job.spec.suspend and not job_outcome(job)


def _ends_by_itself(state: ReplicaState) -> bool:
    """All is over in the pod, and what is still to be said of it is left to the kubelet and the Job controller.

    To suspend such a Job would lose its result, and the pod with its log: a kubelet reports a pod as failed some time
    after its containers have ended, and until then the Job controller deletes it.
    """
    pod = state.pod
    if pod is None or not all_containers_ended(pod) or (state.replica.role.job_name and is_finished(pod)):
        return False
    if state.state == replica_state.SUCCEEDED:
        return pod.status.phase != FAILED
    return _fails_its_job(state) or _is_about_to_fail(state)


def _fails_its_job(state: ReplicaState) -> bool:
    """The Job ends with this pod: it makes no other one after an error that is permanent, or after any error."""
    permanent = state.exited is not None and state.exited.exit_code in PERMANENT_EXIT_CODES
    return state.replica.role.restarts_together or (state.replica.fails_itself and permanent)


def finished_pods_to_delete(plan: Plan, observed: ObservedState) -> list[Pod]:
    """Finished pods that are to go as well."""
    if plan.policy.clean_pod_policy != CLEAN_ALL:
        return []
    return [pod for pod in _pods(observed) if is_finished(pod) and pod.metadata.deletion_timestamp is None]


def is_cleaned_up(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> bool:
    """Nothing is left to stop or delete, and what was stopped is gone or on its way out.

    A pod that is left to fail by itself must have done so: one of its containers might be started again instead.
    """
    if jobs_to_suspend(plan, observed, states) or any(_is_about_to_fail(state) for state in states):
        return False
    if must_suspend_gang(observed) or has_pod_group(observed):
        return False
    if plan.policy.clean_pod_policy == CLEAN_NONE:
        return True
    keeps_finished = plan.policy.clean_pod_policy != CLEAN_ALL
    return all(
        pod.metadata.deletion_timestamp is not None or (keeps_finished and all_containers_ended(pod))
        for pod in _pods(observed)
    )


def _is_about_to_fail(state: ReplicaState) -> bool:
    """Its containers have ended and are not restarted, but the kubelet has not reported the pod as failed yet."""
    pod = state.pod
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    is_restarted = pod.spec.restart_policy != NEVER and not _fails_its_job(state)
    return state.state != replica_state.SUCCEEDED and not is_restarted and all_containers_ended(pod)


def _pods(observed: ObservedState) -> Iterator[Pod]:
    for pods in observed.pods.values():
        yield from pods


def ttl_seconds_left(limit: int | None, ended: str | None, now: datetime) -> float | None:
    """How long a finished job is still kept; 0 or less: it must go. None: for ever.

    A limit that validation refuses is none: whoever wrote it should be able to read why the job failed.
    """
    if limit is None or not 0 <= limit <= INT32_MAX or ended is None:
        return None
    return seconds_until(ended, limit, now)
