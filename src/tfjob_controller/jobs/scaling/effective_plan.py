"""Adapts a plan to the cluster: the workers that a resized job has now, and the restart attempt of its children.

Theory of operation. With `resize: InPlace` a job has the number of workers of its spec, but not always the first ones:
the status of the Gang names the workers that leave, and a new worker takes the lowest free index. No field records
which indexes are in use. They follow from the existing Jobs. If there are too many, the highest indexes leave, or in a
gang those whose member was removed; if there are too few, the lowest free indexes are added. A Job that is being
deleted counts as deleted, so the result does not change when its deletion ends. Worker 0 always stays. A replica that
has succeeded keeps its index while there are enough workers.

With `resize: ByRestart` the status has the attempt that belongs to the number of workers. A job whose pod group is not
admitted by its backend is suspended.

All decisions read the plan that `effective_plan` returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from tfjob_controller.api.common.core import BatchJob
from tfjob_controller.api.common.policies import BY_RESTART, IN_PLACE
from tfjob_controller.api.gang import ATTEMPT_LABEL, MEMBER_LABEL, Gang
from tfjob_controller.jobs.gang.admission import is_placed, is_run_as_gang
from tfjob_controller.jobs.gang.assignment import wanted_role_members
from tfjob_controller.jobs.gang.podgroup import GROUP_LABEL
from tfjob_controller.jobs.plan.model import Plan, Replica
from tfjob_controller.jobs.scaling.progress import with_steps_per_worker
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.state.restarts import joint_restarts
from tfjob_controller.jobs.trainingjob import TrainingStatus


def effective_plan(plan: Plan, observed: ObservedState, status: TrainingStatus) -> Plan:
    """Returns the plan adapted to the cluster; the same object if nothing differs."""
    plan = _of_current_workers_and_attempt(_for_pod_group(plan, observed), observed, status)
    total = plan.progress.total
    return plan if total is None else with_steps_per_worker(plan, total, observed, status)


def _of_current_workers_and_attempt(plan: Plan, observed: ObservedState, status: TrainingStatus) -> Plan:
    if plan.replicas.restarts_together:
        return _of_attempt(plan, joint_restarts(plan, status))
    if plan.scaling.resize == BY_RESTART:
        attempt = status.scaling.attempt if status.scaling is not None else 0
        return _of_attempt(plan, attempt)
    if plan.scaling.resize != IN_PLACE:
        return plan
    workers = [candidate for candidate in plan.replicas.candidates if candidate.role.name == plan.scaling.role]
    wanted = workers[0].role.replicas if workers else 0
    chosen = _chosen(plan, observed, workers, wanted, frozenset(status.succeeded_indexes))
    if chosen == set(range(wanted)):
        return plan
    return _with_workers(plan, chosen)


def _of_attempt(plan: Plan, attempt: int) -> Plan:
    if attempt == plan.restart_attempt:
        return plan
    steps = tuple(dataclasses.replace(step, restart_attempt=attempt) for step in plan.steps)
    return dataclasses.replace(plan, restart_attempt=attempt, steps=steps)


def _with_workers(plan: Plan, indexes: Collection[int]) -> Plan:
    current = tuple(
        candidate
        for candidate in plan.replicas.candidates
        if candidate.role.name != plan.scaling.role or candidate.index in indexes
    )
    present = dataclasses.replace(plan.replicas, all=current, by_name={replica.name: replica for replica in current})
    return dataclasses.replace(plan, replicas=present)


def _chosen(
    plan: Plan, observed: ObservedState, workers: Sequence[Replica], wanted: int, succeeded_ids: Collection[str]
) -> set[int]:
    by_index = {worker.index: worker for worker in workers}
    done = {worker.index for worker in workers if worker.id in succeeded_ids}
    jobs = {index: job for index, worker in by_index.items() if (job := _living(observed, worker.name)) is not None}
    if plan.scheduling.gang is None or not is_run_as_gang(observed):
        return _filled(sorted(jobs.keys() | done)[:wanted], sorted(by_index), wanted)
    gang = observed.gang if observed.gang is not None and is_placed(observed.gang) else None
    return _chosen_of_gang(plan.scaling.role, gang, jobs, done, by_index, wanted)


def _chosen_of_gang(
    role: str, gang: Gang | None, jobs: dict[int, BatchJob], done: set[int], by_index: dict[int, Replica], wanted: int
) -> set[int]:
    """Returns the indexes of a gang's workers. Those that have succeeded need no member, unless their Job has one."""
    gang_attempt = str(gang.status.attempt) if gang is not None else ""
    held = {
        index: job.metadata.labels.get(MEMBER_LABEL, "")
        for index, job in jobs.items()
        if gang_attempt and job.metadata.labels.get(ATTEMPT_LABEL) == gang_attempt
    }
    without_member = sorted(done - held.keys())
    # A gang keeps one member, that of worker 0, even if all have succeeded.
    member_count = max(wanted - len(without_member), min(wanted, 1))
    wanted_now = frozenset(wanted_role_members(gang, role, member_count))
    staying = [index for index, member in sorted(held.items()) if member in wanted_now][:member_count]
    # A Job whose member is not wanted is deleted, so its index is taken last.
    free = sorted(by_index.keys() - set(without_member), key=lambda index: (index in held, index))
    return _filled(staying, free, member_count) | set(without_member[: wanted - member_count])


def _filled(staying: Sequence[int], indexes: Iterable[int], wanted: int) -> set[int]:
    """Returns the staying indexes with the first others, so that there are at least `wanted`."""
    kept = set(staying)
    free = (index for index in indexes if index not in kept)
    return kept | set(islice(free, max(wanted - len(kept), 0)))


def _living(observed: ObservedState, name: str) -> BatchJob | None:
    job = observed.jobs.get(name)
    return job if job is not None and job.metadata.deletion_timestamp is None else None


def _for_pod_group(plan: Plan, observed: ObservedState) -> Plan:
    """The plan, suspended while the backend does not admit the pod group; without one if the job was started so."""
    if plan.scheduling.pod_group is None:
        return plan
    if not _have_group_label(plan, observed):
        return _without_pod_group(plan)
    admission = plan.scheduling.pod_group.backend.admission
    if plan.policy.suspend or admission is None or not admission.holds(observed.pod_group):
        return plan
    held = dataclasses.replace(plan.policy, suspend=True, is_held=True)
    steps = tuple(dataclasses.replace(step, policy=held) for step in plan.steps)
    return dataclasses.replace(plan, policy=held, steps=steps)


def _without_pod_group(plan: Plan) -> Plan:
    scheduling = dataclasses.replace(plan.scheduling, pod_group=None)
    return dataclasses.replace(plan, scheduling=scheduling, steps=tuple(map(_without_pod_group, plan.steps)))


def _have_group_label(plan: Plan, observed: ObservedState) -> bool:
    group, by_name = plan.scheduling.pod_group, plan.replicas.by_name
    members = {member.name for member in group.terms.members} if group is not None else set()
    jobs = (job for name, job in observed.jobs.items() if name in by_name and by_name[name].role.name in members)
    return all(GROUP_LABEL in job.metadata.labels for job in jobs)
