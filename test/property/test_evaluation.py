"""For any history of a job's children, its status and its actions never disagree.

Both are computed from one `JobState`, at every moment of a history, TFJobs' as well as TrainJobs'.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hypothesis import example, given, settings

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.joblives import TRAINJOBS, Life, all_run, exits, job_vanishes, lives, sync
from tfjob_controller.api.common.core import JOBS
from tfjob_controller.jobs.actions.model import NO_ACTIONS, Actions
from tfjob_controller.jobs.actions.planner import plan_actions
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.gang.admission import is_misplaced
from tfjob_controller.jobs.state.replica_state import SUCCEEDED
from tfjob_controller.jobs.status.update import StatusResult, next_status
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP


def a_set_that_runs(*then: Callable[[World], None]) -> Life:
    return functools.partial(TRAINJOBS.new_world, in_steps=False), (sync, all_run, sync, *then)


@example(life=a_set_that_runs(exits("node-0", 137, counted=True)))
@example(life=a_set_that_runs(job_vanishes("node-0", with_pods=True)))
@given(life=lives)
@settings(max_examples=examples(600))
def test_status_and_actions_never_disagree(life: Life) -> None:
    new_world, history = life
    cluster = new_world()
    for happens in history:
        happens(cluster)
        state = cluster.state
        actions, result = plan_actions(state), next_status(state)
        a_job_that_ends_or_restarts_is_left_alone_until_that_is_on_record(state, actions, result)
        a_suspended_job_starts_nothing(state, actions, result)
        only_what_may_run_is_created(state, actions, result)
        what_runs_stays(state, actions)
        a_job_is_recreated_only_once_its_failures_are_counted(state, actions, result)
        a_restart_deletes_exactly_the_set(cluster, state, result)


def a_job_that_ends_or_restarts_is_left_alone_until_that_is_on_record(
    state: JobState, actions: Actions, result: StatusResult
) -> None:
    ends = result.status.completion_time is not None and state.status.completion_time is None
    if ends or (state.plan.replicas.restarts_together and result.status.restarts > state.status.restarts):
        assert actions is NO_ACTIONS
    if result.status.completion_time is not None:
        assert actions.creates == ()


def a_suspended_job_starts_nothing(state: JobState, actions: Actions, result: StatusResult) -> None:
    if _is_true(result, "Suspended"):
        assert state.plan.policy.suspend
        assert actions.creates == ()
        assert all(each.suspend for each in actions.suspends)


def only_what_may_run_is_created(state: JobState, actions: Actions, result: StatusResult) -> None:
    jobs = {each.name for each in actions.creates if each.resource is JOBS}
    created = {each.name for each in state.plan.replicas.all if each.job_name in jobs}
    assert jobs == {state.plan.replicas.by_name[name].job_name for name in created}
    assert not created & state.observed.jobs.keys()
    assert not created & {view.replica.name for view in state.replica_states if view.state == SUCCEEDED}
    assert not {state.plan.replicas.by_name[name].id for name in created} & set(result.status.succeeded_indexes)
    if state.step.plan.scheduling.gang is not None and not _is_true(result, "Scheduled"):
        assert not created


def what_runs_stays(state: JobState, actions: Actions) -> None:
    """Of those that are wanted, in this attempt and in their place, while the job goes on."""
    if state.status.phase == PHASE_CLEAN_UP:
        return
    touched = {each.name for each in actions.deletes if each.resource is JOBS}
    if not state.plan.policy.suspend:
        touched |= {each.name for each in actions.suspends if each.suspend}
    stale = {job.metadata.name for job in state.stale.jobs}
    past = {view.replica.name for view in state.step.completed}
    for view in state.step.replica_states:
        name = view.replica.name
        assignment = state.admission.assignments.get(name) if state.admission is not None else None
        is_in_place = assignment is None or not is_misplaced(view, assignment)
        if view.is_up and not view.must_redo and name not in stale | past and is_in_place:
            is_beside_a_stopped_one = state.plan.replicas.restarts_together and any(
                each.job is not None and each.job.spec.suspend for each in state.step.replica_states
            )
            assert view.replica.job_name not in touched or is_beside_a_stopped_one


def a_job_is_recreated_only_once_its_failures_are_counted(
    state: JobState, actions: Actions, result: StatusResult
) -> None:
    """Where replicas are restarted alone: with the Job goes the only trace of its failure."""
    deleted = {each.uid for each in actions.deletes if each.resource is JOBS}
    for view in state.replica_states:
        if view.job is not None and view.job.metadata.uid in deleted and not view.replica.role.restarts_together:
            key = view.replica.id
            assert result.status.restart_counts.get(key, 0) == state.status.restart_counts.get(key, 0)


def a_restart_deletes_exactly_the_set(cluster: World, state: JobState, result: StatusResult) -> None:
    if not state.plan.replicas.restarts_together or result.status.restarts == state.status.restarts:
        return
    before = cluster.job
    cluster.job = cluster.kind.written(cluster.job, result.status)
    deletes = plan_actions(cluster.state).deletes
    cluster.job = before
    together = {each.job_name for each in state.plan.replicas.all if each.role.restarts_together}
    here = {
        each.job_name
        for each in state.plan.replicas.all
        if each.role.restarts_together
        and each.name in state.observed.jobs
        and state.observed.jobs[each.name].metadata.deletion_timestamp is None
    }
    deleted = {each.name for each in deletes if each.resource is JOBS}
    assert here == deleted & together


def _is_true(result: StatusResult, condition_type: str) -> bool:
    return any(each.type == condition_type and each.status == "True" for each in result.status.conditions)
