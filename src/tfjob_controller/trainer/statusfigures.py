"""What a status counts: replicas by role and state, restarts, who has succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.tfjob import WORKER
from tfjob_controller.api.trainingstatus import ReplicaStatus, TrainingStatus
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.labels import replica_type_labels, selector_string
from tfjob_controller.trainer.plan import Plan, Role
from tfjob_controller.trainer.progress import next_progress
from tfjob_controller.trainer.replicas import View
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.util.timestamps import format_time


def counted(state: JobState) -> TrainingStatus:
    """The old status with all that is simply counted brought up to date."""
    old, plan, views = state.status, state.plan, state.views
    return replace(
        old,
        observed_generation=state.job.metadata.generation,
        start_time=(old.start_time or format_time(state.now))
        if state.has_started and not plan.policy.suspend
        else None,
        **_by_role(plan, views),
        progress=next_progress(plan, state.observed, old.progress),
        succeeded_indexes=_succeeded(old.succeeded_indexes, views),
        restart_counts=state.restart_counts,
        restarts=state.restarts,
        worker_replicas=sum(view.job is not None and view.replica.role.replica_type == WORKER for view in views),
        worker_selector=_worker_selector(plan),
    )


def restarted(state: JobState, status: TrainingStatus) -> TrainingStatus:
    """Where all are started again: those who have succeeded are so, too, and nothing of the new set is there yet."""
    if not state.must_restart_all:
        return status
    views = state.views
    together = {view.replica.id for view in views if view.replica.role.restarts_together}
    kept = tuple(id_ for id_ in status.succeeded_indexes if id_ not in together)
    anew = [View(view.replica, replicas.RUNNING) if view.replica.id in together else view for view in views]
    return replace(status, restarts=status.restarts + 1, succeeded_indexes=kept, **_by_role(state.plan, anew))


def _by_role(plan: Plan, views: Sequence[View]) -> dict[str, Any]:
    """What the status says of each role."""
    states = tuple(_role_status(plan, role, views) for role in plan.roles)
    return {"replica_statuses": states, "ready": {role.name: _ready(role, views) for role in plan.roles}}


def _role_status(plan: Plan, role: Role, views: Sequence[View]) -> ReplicaStatus:
    states: dict[str, int] = {}
    for view in views:
        if view.replica.role is role:
            state = _state_told(plan, view)
            states[state] = states.get(state, 0) + 1
    return ReplicaStatus(role.replica_type, role_state(states), states)


def _state_told(plan: Plan, view: View) -> str:
    """Where more than the chief counts, nothing runs that was not made yet."""
    return replicas.UNKNOWN if plan.needed and view.job is None and view.state == replicas.RUNNING else view.state


def role_state(states: dict[str, int]) -> str:
    """Failed if any index failed, else Running if any runs, else Succeeded if all did, else Unknown."""
    if replicas.FAILED in states:
        return replicas.FAILED
    if replicas.RUNNING in states:
        return replicas.RUNNING
    return replicas.SUCCEEDED if list(states) == [replicas.SUCCEEDED] else replicas.UNKNOWN


def _ready(role: Role, views: Sequence[View]) -> str:
    """`1/2`: a replica that succeeded needs to be no more than that."""
    ready = sum(view.is_ready or view.state == replicas.SUCCEEDED for view in views if view.replica.role is role)
    return f"{ready}/{role.replicas}"


def _succeeded(old: tuple[str, ...], views: Sequence[View]) -> tuple[str, ...]:
    """What succeeded once is remembered for ever, also when the replica is not wanted any more."""
    new = {view.replica.id for view in views if view.state == replicas.SUCCEEDED}.difference(old)
    return tuple(sorted(new.union(old), key=_natural)) if new else old


def untold_successes(views: Sequence[View], status: TrainingStatus) -> Sequence[View]:
    """Those that have succeeded, and of which the status does not know yet."""
    known = frozenset(status.succeeded_indexes)
    return [view for view in views if view.state == replicas.SUCCEEDED and view.replica.id not in known]


def _natural(replica_id: str) -> tuple[str, int, str]:
    role, _, index = replica_id.rpartition("-")
    return role, int(index) if index.isdecimal() else 0, index


def _worker_selector(plan: Plan) -> str:
    if not any(role.replica_type == WORKER for role in plan.roles):
        return ""
    return selector_string(replica_type_labels(dict(plan.labels), WORKER))
