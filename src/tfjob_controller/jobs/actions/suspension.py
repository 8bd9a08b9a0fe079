"""The child Jobs to suspend while a job is suspended, and those to replace when it is resumed.

A suspended Job stops its pods: the Job controller deletes them, and the Job stays for inspection. It is never resumed,
because it starts each pod only once. It is deleted, and another one is created once its pods are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfjob_controller.api.common.core import BatchJob
from tfjob_controller.jobs.actions.model import SetSuspend
from tfjob_controller.jobs.evaluation.cleanup import is_active
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.replica_state import ReplicaState


def jobs_to_stop(states: Sequence[ReplicaState]) -> Iterator[SetSuspend]:
    """Yields the Jobs to suspend while the job is suspended."""
    for state in states:
        if is_active(state.job) and not (state.must_redo and not state.replica.role.restarts_together):
            yield SetSuspend(state.replica.name, True)


def jobs_to_replace(states: Sequence[ReplicaState]) -> Iterator[BatchJob]:
    """Yields the suspended Jobs whose replicas should run again, without those that are being deleted.

    Of replicas that restart together all are replaced, also if only some have been suspended.
    """
    is_stopping = is_set_stopping(states)
    for state in states:
        job = state.job
        if job is None or job.metadata.deletion_timestamp is not None or state.state == replica_state.SUCCEEDED:
            continue
        if job.spec.suspend or (is_stopping and state.replica.role.restarts_together):
            yield job


def is_set_stopping(states: Sequence[ReplicaState]) -> bool:
    """Reports whether a suspended Job of replicas that restart together is left. None of them starts before."""
    return any(
        state.replica.role.restarts_together
        and state.state != replica_state.SUCCEEDED
        and state.job is not None
        and state.job.spec.suspend
        for state in states
    )
