"""However late the controller sees what a recording has, it decides the same, and starts nothing twice.

The loop is open: what the controller decides does not change what it sees next. So only the decisions are compared,
and the moments at which it decides in a recording limit the delays (`helpers.replayedlives`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.recordedlives import Life, recorded_lives
from helpers.replayedlives import Step, replayed
from tfjob_controller.api.common.core import JOBS, BatchJob, Pod
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.state.replica_state import SUCCEEDED, is_lost, lost_before
from tfjob_controller.jobs.trainingjob import PHASE_CREATING, PHASE_RUNNING

# The controller takes a pod for lost, and believes the end of a Job, after 30 s (`LOST_AFTER_SECONDS`).
LAGS = (0.0, 0.0, 0.3, 2.0, 20.0)

LIVES = {life.name: life for life in recorded_lives()}


@functools.cache
def in_order(name: str) -> tuple[int, int, dict[str, BatchJob]]:
    """Returns the restarts of a replay without delays, how many of them may not be seen, and the Jobs created in it.

    What ends shortly before the job may be seen after it, and the other way round.
    """
    life, jobs = LIVES[name], dict[str, BatchJob]()
    steps = list(replayed(life, jobs=jobs))
    ended = next((step.seconds for step in steps if not goes_on(step)), None)
    near = ends_until(life, ended + max(LAGS)) - ends_until(life, ended - max(LAGS)) if ended is not None else 0
    return steps[-1].state.status.restarts, near, jobs


def goes_on(step: Step) -> bool:
    return step.state.status.phase in (PHASE_CREATING, PHASE_RUNNING)


@given(name=st.sampled_from(list(LIVES)), lags=st.lists(st.sampled_from(LAGS), min_size=1, max_size=20))
@settings(max_examples=examples(100))
def test_what_is_seen_late_changes_no_decision(name: str, lags: Sequence[float]) -> None:
    (restarts, near_the_end, jobs), life = in_order(name), LIVES[name]
    succeeded: set[tuple[str, int]] = set()
    for step in replayed(life, lags, jobs):
        if goes_on(step):
            succeeded = what_succeeded_stays(step, succeeded)
        nothing_starts_beside_a_container_that_runs(step)
        assert step.state.status.restarts <= ends_until(life, step.seconds)
        assert step.state.status.completion_time is None or not created_jobs(step)
    found = step.state.status
    assert abs(found.restarts - restarts) <= near_the_end
    # Of a job that was still starting replicas, the phase depends on what was seen of those before.
    assert found.phase == life.phase or life.phase not in ("Done", "Failed"), found.reason


def what_succeeded_stays(step: Step, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """A set that is restarted, or whose suspended Job is replaced, begins from nothing."""
    attempt = step.state.plan.restart_attempt
    now = {
        (each.replica.id, attempt if each.replica.role.restarts_together else 0)
        for each in step.state.replica_states
        if each.state == SUCCEEDED
    }
    is_replaced = any(each.resumes for each in step.actions.deletes)
    assert is_replaced or {(name, of) for name, of in before if of in (0, attempt)} <= now
    return now


def nothing_starts_beside_a_container_that_runs(step: Step) -> None:
    running = {name for name, pods in step.state.observed.pods.items() for pod in pods if may_run(step, pod)}
    names = step.state.observed.indexed_jobs
    busy = running | {names.get(name, name) for name in running}
    assert busy.isdisjoint(created_jobs(step))


def may_run(step: Step, pod: Pod) -> bool:
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    is_up = any(each.state.running is not None for each in containers)
    return is_up and not is_finished(pod) and not is_lost(pod, lost_before(step.state.now))


def created_jobs(step: Step) -> set[str]:
    return {each.name for each in step.actions.creates if each.resource is JOBS}


def ends_until(life: Life, seconds: float) -> int:
    """Returns how many ends of containers and pods there were until then."""
    pods = {each.name: each.obj for each in life.moments if each.seconds <= seconds and isinstance(each.obj, Pod)}
    return sum(map(_ends, pods.values()))


def _ends(pod: Pod) -> int:
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    has_ended = any(each.state.terminated is not None for each in containers)
    is_over = has_ended or is_finished(pod) or pod.metadata.deletion_timestamp is not None
    return sum(each.restart_count for each in containers) + is_over
