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
from datetime import datetime

from tfjob_controller.api.core import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Job
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.actions import NOTHING, Actions, Create, Delete, Patch, SetSuspend, both, deletion
from tfjob_controller.trainer.children import build_config_map, build_job, build_secret, build_service
from tfjob_controller.trainer.cleanup import all_that_go_on, goes_on, jobs_to_stop, pods_to_delete
from tfjob_controller.trainer.elastic import fitted
from tfjob_controller.trainer.gang import (
    Gate,
    as_placed,
    gang_body,
    gate_of,
    is_misplaced,
    must_let_go,
    spec_patch,
    wanted_spec,
)
from tfjob_controller.trainer.gangterms import GangTerms
from tfjob_controller.trainer.generations import is_due, is_of_generation, turnover_of, without_lost, workers_to_know
from tfjob_controller.trainer.groups import group_body, has_to_go, is_group_there, misfit
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.phases import CLEAN_UP, is_finished
from tfjob_controller.trainer.plan import Plan, Replica
from tfjob_controller.trainer.predecessors import is_vacant
from tfjob_controller.trainer.replicas import View, has_failed_suspended
from tfjob_controller.trainer.restarts import is_recorded
from tfjob_controller.trainer.setbackoff import seconds_to_start
from tfjob_controller.trainer.statusfigures import untold_successes
from tfjob_controller.trainer.steps import Step, due_step
from tfjob_controller.trainer.suspension import is_one_stopping, left_going, toggled
from tfjob_controller.trainer.training import judge, to_restart
from tfjob_controller.trainer.views import had_all, views_of
from tfjob_controller.trainer.work import Work


def plan_actions(job: Work, plan: Plan, observed: Observed, now: datetime) -> Actions:
    """The writes that bring the cluster to the plan; `NOTHING` (the same object) when it is there."""
    status = job.status
    if job.metadata.deletion_timestamp is not None or is_finished(status):
        return NOTHING
    plan = fitted(plan, observed, status)
    views = views_of(plan, observed, status, now)
    if status.phase == CLEAN_UP:
        return _cleaning(plan, observed, views) or NOTHING
    if judge(plan, views, (), status.restarts, status.start_time, now) is not None or to_restart(plan, views):
        return NOTHING
    step = due_step(plan, views, without_lost(plan, observed, now))
    holds = seconds_to_start(plan, status, now) > 0
    actions = _together(step, _in_step(step, status, holds=holds), now, resumes=not is_one_stopping(plan, views, now))
    beside = Actions(
        deletes=(*(_surplus(plan, observed) if plan.steps else ()), *_lost(plan, observed, now)),
        suspends=tuple(SetSuspend(view.replica.name, True) for view in step.past if goes_on(view.job)),
    )
    return both(_grouped(plan, step, views), both(actions, beside)) or NOTHING


def _in_step(step: Step, status: TrainingStatus, *, holds: bool) -> Actions:
    """`holds`: nothing is made yet, since it was only now that it had to be made anew."""
    plan, observed, views = step.plan, step.observed, step.views
    gate = gate_of(plan, observed, views)
    if plan.gang is not None and gate is not None:
        return _running_gang(plan, plan.gang, gate, observed, views, status, holds=holds)
    return _running(plan, observed, views, status, holds=holds and plan.has_generations)


def _together(step: Step, actions: Actions, now: datetime, *, resumes: bool) -> Actions:
    """`resumes`: Jobs that are suspended may go on; but first those of a set must all be so."""
    if step.plan.policy.suspend:
        return actions
    left = tuple(left_going(step.plan, step.views, now))
    return actions if resumes and not left else dataclasses.replace(actions, suspends=left)


def _grouped(plan: Plan, step: Step, views: Sequence[View]) -> Actions:
    """The object that another scheduler knows the job's gang by. One on its way out is made anew once it is gone."""
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


def _cleaning(plan: Plan, observed: Observed, views: Sequence[View]) -> Actions:
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


def _running_gang(
    plan: Plan,
    terms: GangTerms,
    gate: Gate,
    observed: Observed,
    views: Sequence[View],
    status: TrainingStatus,
    *,
    holds: bool,
) -> Actions:
    """While suspended, Jobs stay, whatever their attempt: they have no pods. What is stale goes when it is resumed."""
    suspend = plan.policy.suspend
    stale = {job.metadata.name for job in gate.stale}
    here = [view for view in views if view.replica.name not in stale]
    redone = (*_redone(plan, here, status), *_moved(gate, here))
    waits = holds or is_due(plan, status.scaling, workers_to_know(plan, views, gate.seats if gate.is_open else None))
    return Actions(
        creates=() if suspend else tuple(_seated(plan, terms, gate, observed, views, waits=waits)),
        deletes=(*_surplus(plan, observed), *redone, *(() if suspend else _taken_down(gate.stale, views, status))),
        suspends=tuple(_stopped(observed, views) if suspend else toggled(here, suspend=False)),
        patches=tuple(_asked(plan, terms, gate, observed)),
    )


def _seated(
    plan: Plan, terms: GangTerms, gate: Gate, observed: Observed, views: Sequence[View], *, waits: bool
) -> Iterator[Create]:
    """The Gang alone, until it is placed and nothing of an earlier attempt is left; then all that has a seat.

    `waits`: the status must be written first.
    """
    if observed.gang is None:
        yield Create(GANGS, terms.name, gang_body(plan, wanted_spec(plan, terms, gate)))
    if waits or not (gate.is_open and gate.is_clear):
        return
    yield from _mounted(plan, observed)
    told = as_placed(plan, gate, views)
    for view in views:
        replica, seat = view.replica, gate.seats.get(view.replica.name)
        if seat is not None and is_vacant(observed, replica.name) and view.state != replicas.SUCCEEDED:
            yield Create(JOBS, replica.name, build_job(told, replica, seat=seat))
        if _lacks_service(replica, observed) and (seat is not None or view.state == replicas.SUCCEEDED):
            yield Create(SERVICES, replica.name, build_service(plan, replica))


def _asked(plan: Plan, terms: GangTerms, gate: Gate, observed: Observed) -> Iterator[Patch]:
    """What the Gang should ask for and does not yet."""
    gang = observed.gang
    if gang is None or gang.metadata.deletion_timestamp is not None:
        return
    body = spec_patch(gang, wanted_spec(plan, terms, gate), terms)
    if body is not None:
        yield Patch(GANGS, gang.metadata.name, body)


def _taken_down(stale: Iterable[Job], views: Sequence[View], status: TrainingStatus) -> Iterator[Delete]:
    """Each stays as long as its pods do, so that none of the next attempt runs beside one of the last.

    Not before it is on record that its replica has succeeded: with the Job goes the pod, and nobody would know.
    """
    untold = {view.replica.name for view in untold_successes(views, status)}
    for job in stale:
        if job.metadata.deletion_timestamp is None and job.metadata.name not in untold:
            yield deletion(JOBS, job, foreground=True)


def _moved(gate: Gate, views: Sequence[View]) -> Iterator[Delete]:
    """Jobs that are pinned to a node that is not theirs any more."""
    for view in views:
        seat = gate.seats.get(view.replica.name)
        if view.job is not None and seat is not None and is_misplaced(view, seat):
            yield deletion(JOBS, view.job, foreground=True)


def _running(plan: Plan, observed: Observed, views: Sequence[View], status: TrainingStatus, *, holds: bool) -> Actions:
    """Where a job has generations, children of another one go first, and the status says which is present."""
    suspend = plan.policy.suspend
    turnover = turnover_of(plan, observed, views)
    stale = {job.metadata.name for job in turnover.stale}
    here = [view for view in views if view.replica.name not in stale]
    waits = holds or suspend or not turnover.is_clear
    waits = waits or is_due(plan, status.scaling, workers_to_know(plan, views, None))
    return Actions(
        creates=() if waits else tuple(_creates(plan, observed, views)),
        deletes=(
            *_surplus(plan, observed),
            *_redone(plan, here, status),
            *(() if suspend else _taken_down(turnover.stale, views, status)),
        ),
        suspends=tuple(_stopped(observed, views) if suspend else toggled(here, suspend=False)),
    )


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


def _creates(plan: Plan, observed: Observed, views: Sequence[View]) -> Iterator[Create]:
    """What is missing, the chief's first. A succeeded replica keeps its name, but never runs again."""
    yield from _mounted(plan, observed)
    for view in views:
        replica = view.replica
        if is_vacant(observed, replica.name) and view.state != replicas.SUCCEEDED:
            yield Create(JOBS, replica.name, build_job(plan, replica))
        if _lacks_service(replica, observed):
            yield Create(SERVICES, replica.name, build_service(plan, replica))


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


def _lost(plan: Plan, observed: Observed, now: datetime) -> Iterator[Delete]:
    """Jobs of before whose pod is lost with its node: not in the foreground, where they would wait for it for ever."""
    kept = without_lost(plan, observed, now).pods
    for name, pods in observed.pods.items():
        job = observed.jobs.get(name)
        if job is not None and len(kept[name]) < len(pods) and not is_of_generation(plan, job):
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
