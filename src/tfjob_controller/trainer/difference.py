"""What must be written so that the cluster holds what the plan says. Pure; the engine carries it out.

Contract with the engine:

- The end of a job is acted on only once it stands in `status`: so a job is cleaned up after its end is on record, and a
  crash in between loses nothing. As long as an end is due but not recorded, there are no actions at all. Likewise a
  child Job is deleted, to be made anew, only after its failure has been counted.
- All actions of one answer are independent of one another and may be carried out in any order, at the same time.
- Each is idempotent: the same input gives the same answer until the caches show the effect.
- A child that must be made anew is deleted here, and created by a later sync once the cache shows it gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from tfjob_controller.api.core import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Job
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.actions import NOTHING, Actions, Create, Delete, Patch, SetSuspend, both, deletion
from tfjob_controller.trainer.children import build_config_map, build_job, build_secret, build_service
from tfjob_controller.trainer.cleanup import all_that_go_on, goes_on, jobs_to_stop, pods_to_delete
from tfjob_controller.trainer.gang import (
    Gate,
    as_placed,
    gang_body,
    is_misplaced,
    must_let_go,
    spec_patch,
    wanted_spec,
)
from tfjob_controller.trainer.generations import is_due, is_of_generation
from tfjob_controller.trainer.groups import group_body, has_to_go, is_group_there, misfit
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.phases import CLEAN_UP, is_finished
from tfjob_controller.trainer.plan import Plan, Replica
from tfjob_controller.trainer.predecessors import is_vacant
from tfjob_controller.trainer.replicas import View, has_failed_suspended
from tfjob_controller.trainer.restarts import is_recorded
from tfjob_controller.trainer.setbackoff import seconds_to_start
from tfjob_controller.trainer.state.evaluation import JobState
from tfjob_controller.trainer.statusfigures import untold_successes
from tfjob_controller.trainer.suspension import is_one_stopping, left_going, toggled
from tfjob_controller.trainer.views import had_all


def plan_actions(state: JobState) -> Actions:
    """The writes that bring the cluster to the plan; `NOTHING` (the same object) when it is there."""
    if state.job.metadata.deletion_timestamp is not None or is_finished(state.status):
        return NOTHING
    if state.status.phase == CLEAN_UP:
        return _cleaning(state) or NOTHING
    if state.completion is not None or state.must_restart_all:
        return NOTHING
    beside = Actions(
        deletes=(*(_surplus(state.plan, state.observed) if state.plan.steps else ()), *_lost(state)),
        suspends=tuple(SetSuspend(view.replica.name, True) for view in state.step.past if goes_on(view.job)),
    )
    return both(_grouped(state), both(_together(state, _in_step(state)), beside)) or NOTHING


def _in_step(state: JobState) -> Actions:
    """What the due step lacks.

    While the job is suspended its Jobs stay, whatever their attempt: they have no pods. What is stale is deleted when
    the job is resumed.
    """
    plan, observed, views = state.step.plan, state.step.observed, state.step.views
    suspend = plan.policy.suspend
    stale = {job.metadata.name for job in state.turnover.stale}
    here = [view for view in views if view.replica.name not in stale]
    return Actions(
        creates=() if suspend else tuple(_creates(state)),
        deletes=(
            *_surplus(plan, observed),
            *_redone(plan, here, state.status),
            *_moved(state.gate, here),
            *(() if suspend else _taken_down(state)),
        ),
        suspends=tuple(_stopped(observed, views) if suspend else toggled(here, suspend=False)),
        patches=tuple(_asked(state)),
    )


def _together(state: JobState, actions: Actions) -> Actions:
    """Those of a set may go on only once all of them have stopped."""
    step = state.step
    if step.plan.policy.suspend:
        return actions
    left = tuple(left_going(step.plan, step.views, state.now))
    resumes = not left and not is_one_stopping(state.plan, state.views, state.now)
    return actions if resumes else dataclasses.replace(actions, suspends=left)


def _grouped(state: JobState) -> Actions:
    """The object that another scheduler knows the job's gang by. One on its way out is made anew once it is gone."""
    plan, step, views = state.plan, state.step, state.views
    terms, group = plan.pod_group, step.observed.pod_group
    if terms is None or (group is not None and group.metadata.deletion_timestamp is not None):
        return NOTHING
    resource = terms.backend.resource
    if has_to_go(plan, step, terms):
        return Actions(deletes=(deletion(resource, group),)) if group is not None else NOTHING
    if group is None:
        return Actions(creates=(Create(resource, terms.terms.name, group_body(plan, terms, views)),))
    change = misfit(terms, group, views)
    if change is not None and terms.backend.is_immutable:
        return Actions(deletes=(deletion(resource, group),))
    return Actions(patches=(Patch(resource, group.metadata.name, change),)) if change is not None else NOTHING


def stop_all(jobs: Iterable[Job], gangs: Iterable[Gang], groups: Iterable[tuple[Resource, PodGroup]]) -> Actions:
    """For a job that is refused, and so has no plan: whatever child Jobs it has stop, and its Gang lets go."""
    return Actions(
        deletes=tuple(deletion(*group) for group in groups),
        suspends=tuple(SetSuspend(name, True) for name in all_that_go_on(jobs)),
        patches=tuple(_let_go(gang) for gang in gangs if not gang.spec.suspend),
    )


def _cleaning(state: JobState) -> Actions:
    plan, observed, views = state.plan, state.observed, state.views
    return Actions(
        deletes=(*(deletion(PODS, pod) for pod in pods_to_delete(plan, observed)), *_ended_group(plan, observed)),
        suspends=tuple(SetSuspend(name, True) for name in jobs_to_stop(plan, observed, views)),
        patches=(_let_go(observed.gang),) if observed.gang is not None and must_let_go(observed) else (),
    )


def _ended_group(plan: Plan, observed: Observed) -> Iterator[Delete]:
    if plan.pod_group is not None and observed.pod_group is not None and is_group_there(observed):
        yield deletion(plan.pod_group.backend.resource, observed.pod_group)


def _let_go(gang: Gang) -> Patch:
    return Patch(GANGS, gang.metadata.name, {"spec": {"suspend": True}})


def _creates(state: JobState) -> Iterator[Create]:
    """What is missing, the chief's first; of a gang the Gang alone until it is placed, then all that has a seat.

    A succeeded replica keeps its name, but never runs again.
    """
    plan, observed, gate = state.step.plan, state.step.observed, state.gate
    if plan.gang is not None and gate is not None and observed.gang is None:
        yield Create(GANGS, plan.gang.name, gang_body(plan, wanted_spec(plan, plan.gang, gate)))
    if _must_wait(state):
        return
    yield from _mounted(plan, observed)
    told = plan if gate is None else as_placed(plan, gate, state.step.views)
    for view in state.step.views:
        replica, is_done = view.replica, view.state == replicas.SUCCEEDED
        seat = gate.seats.get(replica.name) if gate is not None else None
        has_place = gate is None or seat is not None
        if has_place and not is_done and is_vacant(observed, replica.name):
            yield Create(JOBS, replica.name, build_job(told, replica, seat=seat))
        if (has_place or is_done) and _lacks_service(replica, observed):
            yield Create(SERVICES, replica.name, build_service(plan, replica))


def _must_wait(state: JobState) -> bool:
    """Reports whether no child may be created yet: the gang has no place, children of an earlier attempt are left, the
    set was restarted only just now, or the status must say first for how many workers it is.
    """
    plan = state.step.plan
    if (state.gate is not None and not state.gate.is_open) or not state.turnover.is_clear:
        return True
    if plan.has_generations and seconds_to_start(state.plan, state.status, state.now) > 0:
        return True
    return is_due(plan, state.status.scaling, state.known_workers)


def _asked(state: JobState) -> Iterator[Patch]:
    """What the Gang should ask for and does not yet."""
    plan, gang, gate = state.step.plan, state.step.observed.gang, state.gate
    if plan.gang is None or gate is None or gang is None or gang.metadata.deletion_timestamp is not None:
        return
    body = spec_patch(gang, wanted_spec(plan, plan.gang, gate), plan.gang)
    if body is not None:
        yield Patch(GANGS, gang.metadata.name, body)


def _taken_down(state: JobState) -> Iterator[Delete]:
    """Each stays as long as its pods do, so that none of the next attempt runs beside one of the last.

    Not before it is on record that its replica has succeeded: with the Job goes the pod, and nobody would know.
    """
    untold = {view.replica.name for view in untold_successes(state.step.views, state.status)}
    for job in state.turnover.stale:
        if job.metadata.deletion_timestamp is None and job.metadata.name not in untold:
            yield deletion(JOBS, job, foreground=True)


def _moved(gate: Gate | None, views: Sequence[View]) -> Iterator[Delete]:
    """Jobs that are pinned to a node that is not theirs any more."""
    for view in views if gate is not None else ():
        seat = gate.seats.get(view.replica.name) if gate is not None else None
        if view.job is not None and seat is not None and is_misplaced(view, seat):
            yield deletion(JOBS, view.job, foreground=True)


def _stopped(observed: Observed, views: Sequence[View]) -> Iterator[SetSuspend]:
    """What a suspended job must stop.

    That includes the Jobs from before a restart that is on record, if they have not been deleted yet: no view shows
    them any more, but their pods run.
    """
    yield from toggled(views, suspend=True)
    for view in views:
        job = observed.jobs.get(view.replica.name)
        if view.job is None and job is not None and job.metadata.deletion_timestamp is None and goes_on(job):
            yield SetSuspend(job.metadata.name, True)


def _mounted(plan: Plan, observed: Observed) -> Iterator[Create]:
    """What pods mount: they wait for it, so it may come at the same time as they."""
    if plan.config_map and not observed.has_config_map:
        yield Create(CONFIG_MAPS, plan.config_map, build_config_map(plan))
    if plan.secret is not None and not observed.has_secret:
        yield Create(SECRETS, plan.secret.name, build_secret(plan, plan.secret))


def _lacks_service(replica: Replica, observed: Observed) -> bool:
    return bool(replica.role.port) and replica.name not in observed.services


def _surplus(plan: Plan, observed: Observed) -> Iterator[Delete]:
    """Children of replicas that the job does not want any more.

    If one is wanted again, its new pod must not run beside the old one, so its Job stays as long as that does.
    """
    for name, job in observed.jobs.items():
        if name not in plan.by_name and job.metadata.deletion_timestamp is None:
            yield deletion(JOBS, job, foreground=True)
    for name, service in observed.services.items():
        if name not in plan.by_name and service.metadata.deletion_timestamp is None:
            yield deletion(SERVICES, service)


def _lost(state: JobState) -> Iterator[Delete]:
    """Jobs of before whose pod is lost with its node: not in the foreground, where they would wait for it for ever."""
    if state.reachable is state.observed:
        return
    for name, pods in state.observed.pods.items():
        job = state.observed.jobs.get(name)
        if job is not None and len(state.reachable.pods[name]) < len(pods) and not is_of_generation(state.plan, job):
            yield deletion(JOBS, job)


def _redone(plan: Plan, views: Sequence[View], status: TrainingStatus) -> Iterator[Delete]:
    """Their pods have ended, or are lost with their node and would keep a Job for ever."""
    for view in views:
        if view.job is None or not view.must_redo or view.job.metadata.deletion_timestamp is not None:
            continue
        together = view.replica.role.restarts_together
        if _goes_alone(plan, view, view.job, status) if together else is_recorded(view, status.restart_counts):
            yield deletion(JOBS, view.job)


def _goes_alone(plan: Plan, view: View, job: Job, status: TrainingStatus) -> bool:
    """Of one that is made anew with all others otherwise. Not before its pods are gone and the status tells of it, or
    it would be taken for one that somebody deleted.
    """
    return has_failed_suspended(job) and not view.pods and not had_all(plan, status)
