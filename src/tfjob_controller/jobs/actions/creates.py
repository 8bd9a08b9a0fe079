"""The creates of a sync: the children of the plan that do not exist, once no child of an old attempt is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_RUNNING,
    PODS,
    SECRETS,
    SERVICES,
)
from tfjob_controller.api.gang import GANGS
from tfjob_controller.jobs.actions.children import (
    build_claim,
    build_config_map,
    build_first_service,
    build_job,
    build_object,
    build_pod,
    build_secret,
    build_service,
)
from tfjob_controller.jobs.actions.model import Create
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.gang.admission import GangAdmission, build_gang, desired_gang_spec, plan_for_admitted
from tfjob_controller.jobs.plan.model import Plan, PlannedObject, Replica, Role
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import can_create_job, is_scaling_unrecorded
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.state.restarts import seconds_until_restart


def creates(job_state: JobState) -> Iterator[Create]:
    """Yields the missing children, those of the chief first.

    For a gang this is only the Gang until it is placed, and then the children of all replicas with an assignment. A
    replica that has succeeded never runs again, but keeps its Service.
    """
    plan, observed, admission = job_state.step.plan, job_state.step.observed, job_state.admission
    terms = plan.scheduling.gang
    if terms is not None and admission is not None and observed.gang is None:
        yield Create(GANGS, terms.name, build_gang(plan, desired_gang_spec(plan, terms, admission)))
    if _must_wait(job_state):
        return
    if missing := _missing_objects(plan, observed):
        # The API server refuses pods of a ServiceAccount that does not exist yet.
        for planned in missing:
            yield Create(planned.resource, planned.name, build_object(plan, planned, running_pods(observed)))
        return
    yield from _mounted_creates(plan, observed)
    announced = plan if admission is None else plan_for_admitted(plan, admission, job_state.step.replica_states)
    yield from _indexed_creates(job_state, announced)
    for state in job_state.step.replica_states:
        replica, is_done = state.replica, state.state == replica_state.SUCCEEDED
        if replica.role.job_name:
            continue
        assignment = admission.assignments.get(replica.name) if admission is not None else None
        is_assigned = admission is None or assignment is not None
        if is_assigned and not is_done and can_create_job(observed, replica.name):
            restarts = job_state.status.restart_counts.get(replica.id, 0)
            if announced.carrier is not None:
                pod = build_pod(announced, announced.carrier, replica, assignment=assignment, restarts=restarts)
                yield Create(PODS, replica.name, pod)
            else:
                body = build_job(announced, replica, assignment=assignment, restarts=restarts)
                yield Create(JOBS, replica.name, body)
        if (is_assigned or is_done) and _lacks_service(replica, observed):
            yield Create(SERVICES, replica.name, build_service(plan, replica))


def _indexed_creates(job_state: JobState, plan: Plan) -> Iterator[Create]:
    """Yields the missing Indexed Jobs and their Services.

    A Job is created once all of its replicas may run, or for an elastic role those that have nodes in the gang.
    """
    observed, admission = job_state.step.observed, job_state.admission
    for role in plan.replicas.roles:
        states = [state for state in job_state.step.replica_states if state.replica.role is role]
        if not role.job_name or not states:
            continue
        first, count = states[0].replica, index_count(role, states, admission)
        if not count:
            continue
        is_done = all(state.state == replica_state.SUCCEEDED for state in states)
        if not is_done and all(can_create_job(observed, state.replica.name) for state in states):
            assignment = admission.assignments[first.name] if admission is not None else None
            of_count = replace(first, role=replace(role, replicas=count))
            yield Create(JOBS, role.job_name, build_job(plan, of_count, assignment=assignment))
        if _lacks_service(first, observed):
            yield Create(SERVICES, role.service_name, build_service(plan, first))
        if role.is_elastic and not observed.has_first_service:
            yield Create(SERVICES, first.name, build_first_service(plan, first))


def index_count(role: Role, states: Sequence[ReplicaState], admission: GangAdmission | None) -> int:
    """Returns how many indexes of a role's Job may run now. `states` are those of the role, by index."""
    if admission is None:
        return role.replicas
    assigned = sum(1 for _ in takewhile(lambda state: state.replica.name in admission.assignments, states))
    return assigned if assigned >= min(role.min_replicas or role.replicas, role.replicas) else 0


def _must_wait(job_state: JobState) -> bool:
    """Reports whether no child may be created yet.

    This is so while the gang is not placed, children of an earlier attempt or suspended ones of a set exist, the
    back-off of a restart lasts, or the status does not have the number of workers yet.
    """
    plan = job_state.step.plan
    if (job_state.admission is not None and not job_state.admission.is_admitted) or not job_state.stale.are_deleted:
        return True
    if is_set_stopping(job_state.step.replica_states):
        return True
    if plan.has_restart_attempts and seconds_until_restart(job_state.plan, job_state.status, job_state.now) > 0:
        return True
    return is_scaling_unrecorded(plan, job_state.status.scaling, job_state.attempt_members)


def _mounted_creates(plan: Plan, observed: ObservedState) -> Iterator[Create]:
    """Yields the objects that pods mount. They may be created together with the pods, which wait for them."""
    if plan.mounts.config_map and not observed.has_config_map:
        yield Create(CONFIG_MAPS, plan.mounts.config_map, build_config_map(plan))
    if plan.mounts.secret is not None and not observed.has_secret:
        yield Create(SECRETS, plan.mounts.secret.name, build_secret(plan, plan.mounts.secret))
    for claim in plan.mounts.claims:
        if claim.name not in observed.claims:
            yield Create(PERSISTENT_VOLUME_CLAIMS, claim.name, build_claim(plan, claim))


def _missing_objects(plan: Plan, observed: ObservedState) -> Sequence[PlannedObject]:
    """Returns the objects to create next: those that refer to others come after them."""
    missing = [planned for planned in plan.objects if (planned.resource.kind, planned.name) not in observed.objects]
    return [planned for planned in missing if not planned.refers] or missing


def running_pods(observed: ObservedState) -> Collection[str]:
    """Returns the names of the pods that run, in a state with a pod for each name."""
    return {name for name, pods in observed.pods.items() if any(pod.status.phase == POD_RUNNING for pod in pods)}


def _lacks_service(replica: Replica, observed: ObservedState) -> bool:
    return bool(replica.role.port) and replica.name not in observed.services


def is_set_stopping(states: Sequence[ReplicaState]) -> bool:
    """Reports whether a suspended Job of replicas that restart together is left. None of them starts before."""
    return any(
        state.replica.role.restarts_together
        and state.state != replica_state.SUCCEEDED
        and state.job is not None
        and state.job.spec.suspend
        for state in states
    )
