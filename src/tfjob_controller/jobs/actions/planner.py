"""Plans the writes that make the cluster match the plan. Pure; the reconciler sends the writes.

Contract with the reconciler:

- The end of a job leads to actions only once it is written to `status`: the job is cleaned up after that, so a crash in
  between loses nothing. While an end is due but not written, there are no actions. Likewise a child Job that must be
  recreated is deleted only after its failure is counted in the status, and an elastic Job is resized only after the
  status has its new size: another process could not tell whose doing the end of a pod is.
- All actions of a result are independent of each other and may be sent concurrently, in any order.
- Actions are idempotent: the same input gives the same result until the caches show the effect.
- A child that must be recreated is deleted first, and created by a later sync once the cache shows that it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import (
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PODS,
    SERVICES,
    BatchJob,
    Pod,
    PodGroup,
)
from tfjob_controller.api.common.policies import CLEAN_NONE
from tfjob_controller.api.gang import CHECKPOINT_TIME_ANNOTATION, GANGS, Gang
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.actions.children import autoscaler_patch, build_autoscaler, content_digest
from tfjob_controller.jobs.actions.creates import creates, index_count, is_set_stopping, running_pods
from tfjob_controller.jobs.actions.model import (
    NO_ACTIONS,
    Actions,
    Create,
    Delete,
    Patch,
    SetSuspend,
    build_delete,
    combined,
    merge,
)
from tfjob_controller.jobs.evaluation.cleanup import (
    finished_pods_to_delete,
    is_active,
    jobs_to_suspend,
    services_to_delete,
)
from tfjob_controller.jobs.evaluation.jobstate import JobState, had_all_jobs
from tfjob_controller.jobs.gang.admission import (
    GangAdmission,
    desired_gang_spec,
    gang_spec_patch,
    is_misplaced,
    must_suspend_gang,
)
from tfjob_controller.jobs.gang.podgroup import (
    build_pod_group,
    must_delete_pod_group,
    pod_group_patch,
)
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import is_replaced_job
from tfjob_controller.jobs.state.observed import ObservedState, job_outcome
from tfjob_controller.jobs.state.pods import is_finished as is_finished_pod
from tfjob_controller.jobs.state.replica_state import ReplicaState, seconds_until_removal, unrecorded_successes
from tfjob_controller.jobs.state.restarts import (
    is_restart_recorded,
    seconds_until_replica_restart,
    surplus_failed_pods,
)
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, is_finished
from tfjob_controller.kube.meta import Object, Resource

# Ends a Job that has run for a second. A suspended Job of an elastic role would keep the finalizer of a failed pod that
# it has not replaced yet, and the pod and its namespace could not be deleted (job_controller.go:canRemoveFinalizer).
_ENDED = {"spec": {"activeDeadlineSeconds": 1}}


def plan_actions(job_state: JobState) -> Actions:
    """Returns the writes that make the cluster match the plan; `NO_ACTIONS` (the same object) if there are none."""
    if job_state.job.metadata.deletion_timestamp is not None:
        return NO_ACTIONS
    return combined(job_state.plan, job_state.observed, _due(job_state)) or NO_ACTIONS


def _due(job_state: JobState) -> Actions:
    if is_finished(job_state.status):
        return Actions(suspends=tuple(_restarted_suspends(job_state)))
    if job_state.status.phase == PHASE_CLEAN_UP:
        return _clean_up(job_state)
    if job_state.completion is not None or job_state.must_restart_all:
        # The status must be written first.
        return NO_ACTIONS
    current = _suspended(job_state) if job_state.step.plan.policy.suspend else _running(job_state)
    return merge(_pod_group(job_state), _autoscaler(job_state), current, _obsolete(job_state))


def _suspended(job_state: JobState) -> Actions:
    """Returns the actions in the current step of a suspended job.

    Stale Jobs have no pods and stay. They are deleted when the job is resumed.
    """
    step = job_state.step
    if step.plan.carrier is not None and not conditions.has_true(job_state.status.conditions, conditions.SUSPENDED):
        # Otherwise another process could not tell that the pods end because of the suspension.
        return NO_ACTIONS
    services = services_to_delete(step.plan, step.observed, is_suspended=True)
    return Actions(
        deletes=(
            *_deletes(job_state),
            *_finished_pod_deletes(job_state),
            *(build_delete(SERVICES, service) for service in services),
        ),
        suspends=tuple(_suspends(step.observed, step.replica_states)),
        patches=(*_gang_patches(job_state), *_resizes(job_state)),
    )


def _finished_pod_deletes(job_state: JobState) -> Iterator[Delete]:
    """Yields the deletions of ended pods of a suspended job that has no child Jobs, once their success is recorded."""
    step = job_state.step
    unrecorded = {state.replica.name for state in unrecorded_successes(step.replica_states, job_state.status)}
    for name, pods in step.observed.pods.items() if step.plan.carrier is not None else ():
        for pod in pods:
            if is_finished_pod(pod) and name not in unrecorded and pod.metadata.deletion_timestamp is None:
                yield build_delete(PODS, pod)


def _running(job_state: JobState) -> Actions:
    """Returns the actions in the current step of a job that is not suspended."""
    step, counts = job_state.step, job_state.status.restart_counts
    return Actions(
        creates=tuple(creates(job_state)),
        deletes=(
            *_deletes(job_state),
            *_stale_deletes(job_state),
            *_ended_pod_deletes(step.replica_states, job_state.now),
            *(build_delete(PODS, pod) for pod in surplus_failed_pods(step.plan, step.observed, counts)),
            *_replaced_deletes(job_state),
        ),
        patches=(*_gang_patches(job_state), *_resizes(job_state), *_object_patches(job_state.plan, job_state.observed)),
    )


def _deletes(job_state: JobState) -> tuple[Delete, ...]:
    """Returns the children to delete whether or not the job is suspended."""
    step, current = job_state.step, _without_stale(job_state)
    return (
        *_surplus_deletes(step.plan, step.observed),
        *_recreated_deletes(current, job_state),
        *_reassigned_deletes(job_state.admission, current),
    )


def _ended_pod_deletes(states: Sequence[ReplicaState], now: datetime) -> Iterator[Delete]:
    """Yields the deletions of pods that do nothing any more, but do not end by themselves."""
    for state in states:
        left = seconds_until_removal(state, now)
        if state.pod is not None and left is not None and left <= 0:
            yield build_delete(PODS, state.pod)


def _without_stale(job_state: JobState) -> list[ReplicaState]:
    stale = {job.metadata.name for job in job_state.stale.jobs}
    return [state for state in job_state.step.replica_states if state.replica.name not in stale]


def _replaced_deletes(job_state: JobState) -> Iterator[Delete]:
    """Yields the deletions of suspended Jobs that are replaced, in the foreground: their pods must be gone first.

    A suspended Job is never resumed, because it starts each pod only once. Of replicas that restart together all Jobs
    are replaced, also if only some have been suspended, once the status does not have them any more: otherwise a user
    seems to delete them. Those of initializers and exporters belong to no set.
    """
    states = _without_stale(job_state)
    if had_all_jobs(job_state.plan, job_state.status):
        states = [state for state in states if not state.replica.role.restarts_together]
    is_stopping = is_set_stopping(states)
    for state in states:
        job = state.job
        if job is None or job.metadata.deletion_timestamp is not None or state.state == replica_state.SUCCEEDED:
            continue
        if job.spec.suspend or (is_stopping and state.replica.role.restarts_together):
            yield build_delete(JOBS, job, foreground=True, resumes=True)


def _obsolete(job_state: JobState) -> Actions:
    """Returns the writes for surplus children, Jobs of lost pods, and Jobs of completed steps that are still active."""
    plan, observed, completed = job_state.plan, job_state.observed, job_state.step.completed
    surplus = _surplus_deletes(plan, observed) if plan.steps else ()
    deletes = (*surplus, *_lost_deletes(job_state))
    if not completed:
        return Actions(deletes=deletes)
    past = observed.only({state.replica.name for state in completed})
    return Actions(
        deletes=(*deletes, *_ended_pod_deletes(completed, job_state.now)),
        suspends=tuple(SetSuspend(name, True) for name in jobs_to_suspend(plan, past, completed, job_state.now)),
    )


def _pod_group(job_state: JobState) -> Actions:
    """Returns the writes of the object that represents the gang to another scheduler."""
    plan, step, states = job_state.plan, job_state.step, job_state.replica_states
    terms, group = plan.scheduling.pod_group, step.observed.pod_group
    if terms is None or (group is not None and group.metadata.deletion_timestamp is not None):
        return NO_ACTIONS
    resource = terms.backend.resource
    if must_delete_pod_group(plan, step, terms):
        return Actions(deletes=(build_delete(resource, group),)) if group is not None else NO_ACTIONS
    if group is None:
        return Actions(creates=(Create(resource, terms.terms.name, build_pod_group(plan, terms, states)),))
    change = pod_group_patch(terms, group, states)
    if change is not None and terms.backend.is_immutable:
        return Actions(deletes=(build_delete(resource, group),))
    return Actions(patches=(Patch(resource, group.metadata.name, change),)) if change is not None else NO_ACTIONS


def _autoscaler(job_state: JobState) -> Actions:
    """Returns the write of the HorizontalPodAutoscaler of an elastic job with `elasticPolicy.metrics`.

    It exists while the job may run. The job trains without it, so the controller's faults with it never end the job.
    The gang scheduler's resize requests are not followed for such a job, since the two would work against each other.
    """
    plan, autoscaler = job_state.plan, job_state.observed.autoscaler
    if not plan.scaling.metrics or plan.policy.suspend:
        return Actions(deletes=tuple(_autoscaler_deletes(job_state.observed)))
    if autoscaler is None:
        create = Create(HORIZONTAL_POD_AUTOSCALERS, plan.identity.job_name, build_autoscaler(plan))
        return Actions(creates=(create,))
    change = autoscaler_patch(plan, autoscaler)
    if change is None or not job_state.observed.has_autoscaler:
        return NO_ACTIONS
    return Actions(patches=(Patch(HORIZONTAL_POD_AUTOSCALERS, autoscaler.metadata.name, change),))


def _autoscaler_deletes(observed: ObservedState) -> Iterator[Delete]:
    if observed.autoscaler is not None and observed.has_autoscaler:
        yield build_delete(HORIZONTAL_POD_AUTOSCALERS, observed.autoscaler)


def stop_all(
    jobs: Iterable[BatchJob],
    gangs: Iterable[Gang],
    groups: Iterable[tuple[Resource[Object], PodGroup]],
    pods: Iterable[Pod] = (),
) -> Actions:
    """Returns the writes for an invalid job, which has no plan: its Jobs and its Gang are suspended.

    `pods` are those that the job itself owns.
    """
    running = (pod for pod in pods if not is_finished_pod(pod) and pod.metadata.deletion_timestamp is None)
    return Actions(
        deletes=(
            *(build_delete(*group) for group in groups),
            *(build_delete(PODS, pod) for pod in running),
        ),
        suspends=tuple(SetSuspend(job.metadata.name, True) for job in jobs if is_active(job)),
        patches=tuple(_suspend_gang(gang) for gang in gangs if not gang.spec.suspend),
    )


def _clean_up(job_state: JobState) -> Actions:
    plan, observed, states = job_state.plan, job_state.observed, job_state.replica_states
    stopped = jobs_to_suspend(plan, observed, states, job_state.now)
    elastic = {replica.name: replica.job_name for replica in plan.replicas.all if replica.role.is_elastic}
    ended = dict.fromkeys(elastic[name] for name in stopped if name in elastic)
    terms = plan.scheduling.pod_group
    groups = (observed.pod_group,) if observed.pod_group is not None and observed.has_pod_group else ()
    return Actions(
        deletes=(
            *(build_delete(PODS, pod) for pod in finished_pods_to_delete(plan, observed)),
            *(_ended_pod_deletes(states, job_state.now) if plan.policy.clean_pod_policy != CLEAN_NONE else ()),
            *(build_delete(SERVICES, service) for service in services_to_delete(plan, observed)),
            *(build_delete(terms.backend.resource, group) for group in groups if terms is not None),
            *_autoscaler_deletes(observed),
        ),
        suspends=tuple(SetSuspend(name, True) for name in stopped if name not in elastic),
        patches=(
            *(Patch(JOBS, name, _ENDED) for name in ended),
            *((_suspend_gang(observed.gang),) if observed.gang is not None and must_suspend_gang(observed) else ()),
        ),
    )


def _restarted_suspends(job_state: JobState) -> Iterator[SetSuspend]:
    """Yields the Jobs of a finished job in whose pods, which the policy `None` has kept, a program starts again."""
    plan, observed, states = job_state.plan, job_state.observed, job_state.replica_states
    if plan.policy.clean_pod_policy == CLEAN_NONE:
        for name in jobs_to_suspend(plan, observed, states, job_state.now, job_state.status.completion_time):
            yield SetSuspend(name, True)


def _suspend_gang(gang: Gang) -> Patch:
    return Patch(GANGS, gang.metadata.name, {"spec": {"suspend": True}})


def _resizes(job_state: JobState) -> Iterator[Patch]:
    """Yields the patch of `parallelism` and `completions` of an elastic Job, which batch/v1 allows only together.

    A gang grows as far as it has nodes for all lower indexes. Once a replica has succeeded, the others will soon, and
    no replica is added that would find no peers.
    """
    if not _is_size_recorded(job_state):
        return
    current = _without_stale(job_state)
    for role in job_state.step.plan.replicas.roles:
        states = [state for state in current if state.replica.role is role]
        job = states[0].job if role.is_elastic and states else None
        count = index_count(role, states, job_state.admission)
        if job is None or job.metadata.deletion_timestamp is not None or count in (0, job.spec.parallelism):
            continue
        if not job_outcome(job) and all(state.state != replica_state.SUCCEEDED for state in states):
            yield Patch(JOBS, role.job_name, {"spec": {"parallelism": count, "completions": count}})


def _object_patches(plan: Plan, observed: ObservedState) -> Iterator[Patch]:
    """Yields the patches of the objects whose content follows the job and the pods that run."""
    for planned in plan.objects:
        digest = observed.objects.get((planned.resource.kind, planned.name))
        if not planned.is_updated or digest is None:
            continue
        content = planned.content(running_pods(observed))
        if content_digest(content) != digest:
            yield Patch(planned.resource, planned.name, dict(content))


def _is_size_recorded(job_state: JobState) -> bool:
    """Reports whether the status has the number of replicas that an elastic job should have; it is resized after that.

    The condition Resizing tells pods that a resize has removed from those that others have deleted.
    """
    scaling = job_state.status.scaling
    elastic = [role for role in job_state.plan.replicas.roles if role.is_elastic]
    return all(scaling is not None and scaling.replicas == role.replicas for role in elastic)


def _gang_patches(job_state: JobState) -> Iterator[Patch]:
    """Yields the patch that makes the Gang request what the job needs, if it does not."""
    plan, gang, admission = job_state.step.plan, job_state.step.observed.gang, job_state.admission
    terms = plan.scheduling.gang
    if terms is None or admission is None or gang is None or gang.metadata.deletion_timestamp is not None:
        return
    if not _is_size_recorded(job_state):
        return
    body = gang_spec_patch(gang, desired_gang_spec(plan, terms, admission), terms) or {}
    saved = job_state.status.checkpoint.time if job_state.status.checkpoint is not None else None
    if saved and saved != gang.metadata.annotations.checkpoint_time:
        body = {**body, "metadata": {"annotations": {CHECKPOINT_TIME_ANNOTATION: saved}}}
    if body:
        yield Patch(GANGS, gang.metadata.name, body)


def _stale_deletes(job_state: JobState) -> Iterator[Delete]:
    """Yields the deletions of stale Jobs, in the foreground, so that no pod of the next attempt runs beside theirs.

    If the replica has succeeded, this must be recorded first, since the pod, which shows it, is deleted with the Job.
    """
    unrecorded = {state.replica.name for state in unrecorded_successes(job_state.step.replica_states, job_state.status)}
    for job in job_state.stale.jobs:
        if job.metadata.deletion_timestamp is None and job.metadata.name not in unrecorded:
            yield build_delete(JOBS, job, foreground=True)


def _reassigned_deletes(admission: GangAdmission | None, states: Sequence[ReplicaState]) -> Iterator[Delete]:
    """Yields the deletions of Jobs that are pinned to another node than the assigned one."""
    assignments = admission.assignments if admission is not None else {}
    for state in states:
        assignment = assignments.get(state.replica.name)
        if state.job is not None and assignment is not None and is_misplaced(state, assignment):
            yield build_delete(JOBS, state.job, foreground=True)


def _suspends(observed: ObservedState, states: Sequence[ReplicaState]) -> Iterator[SetSuspend]:
    """Yields the Jobs that must be suspended because the job is: their pods are deleted, and they stay for inspection.

    They include Jobs of an earlier attempt that have not been deleted yet. No replica state has them, but their pods
    run.
    """
    for state in states:
        job = state.job
        if job is None:
            job = observed.jobs.get(state.replica.name)
            if job is not None and job.metadata.deletion_timestamp is not None:
                continue
        elif state.must_redo and not state.replica.role.restarts_together:
            continue
        if is_active(job):
            yield SetSuspend(state.replica.name, True)


def _surplus_deletes(plan: Plan, observed: ObservedState) -> Iterator[Delete]:
    """Yields the deletions of children that are not in the plan, such as those of removed workers.

    Jobs are deleted in the foreground: a worker that is added again must not run beside its old pod.
    """
    for name, job in observed.jobs.items():
        if name not in plan.replicas.by_name and job.metadata.deletion_timestamp is None:
            yield build_delete(JOBS, job, foreground=True)
    for name, service in observed.services.items():
        if name not in plan.replicas.by_name and service.metadata.deletion_timestamp is None:
            yield build_delete(SERVICES, service)


def _lost_deletes(job_state: JobState) -> Iterator[Delete]:
    """Yields the deletions of Jobs of earlier attempts, or suspended ones, whose pods were lost with their node.

    They are not deleted in the foreground, where they would wait for these pods forever.
    """
    if job_state.reachable is job_state.observed:
        return
    for name, pods in job_state.observed.pods.items():
        job = job_state.observed.jobs.get(name)
        if job is not None and len(job_state.reachable.pods[name]) < len(pods) and is_replaced_job(job_state.plan, job):
            yield build_delete(JOBS, job)


def _recreated_deletes(states: Sequence[ReplicaState], job_state: JobState) -> Iterator[Delete]:
    """Yields the deletions of Jobs that must be recreated, and whose pods have ended or were lost with their node.

    An ended pod stays until the back-off of the replica has passed, so that its log can be read.
    """
    for state in states:
        job = state.job
        if job is None or job.spec.suspend or not state.must_redo or job.metadata.deletion_timestamp is not None:
            continue
        is_recorded = is_restart_recorded(state, job_state.status.restart_counts)
        is_due = is_recorded and seconds_until_replica_restart(state, job_state.now) <= 0
        if is_due and not state.replica.role.restarts_together:
            yield build_delete(JOBS, job)
