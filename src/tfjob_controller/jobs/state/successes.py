"""Replicas that have succeeded, and those whose success no status has recorded yet."""

from __future__ import annotations

from collections.abc import Sequence

from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.trainingjob import TrainingStatus


def has_run_and_succeeded(state: ReplicaState) -> bool:
    return state.state == replica_state.SUCCEEDED and not replica_state.never_existed(state)


def unrecorded_successes(states: Sequence[ReplicaState], status: TrainingStatus) -> Sequence[ReplicaState]:
    """Returns the replicas whose success the status does not have yet."""
    known = frozenset(status.succeeded_indexes)
    return [state for state in states if has_run_and_succeeded(state) and state.replica.id not in known]
