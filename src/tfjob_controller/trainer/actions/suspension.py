"""Which child Jobs are to be suspended, and when those that are may go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import Pod
from tfjob_controller.trainer.actions.cleanup import is_active
from tfjob_controller.trainer.actions.model import SetSuspend
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.pods import is_finished, last_exit, training_container
from tfjob_controller.trainer.state.replica_state import JOB_COMPLETE, JOB_SUSPENDED, ReplicaState, job_outcome
from tfjob_controller.util.timestamps import format_time


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
    if state.state != replica_state.SUCCEEDED:
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
