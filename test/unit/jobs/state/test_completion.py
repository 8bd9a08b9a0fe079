"""The rules of jobs/state/completion.py, as far as a job's set is concerned: has it succeeded, must it start again?

The rules of jobs/state/completion.py: which step is due.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helpers.clusterinmemory import World, running_world
from helpers.trainworld import ends, running_train_world, world_in_steps
from tfjob_controller.jobs.state.completion import Completion, Step, has_succeeded, job_completion
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.state.restarts import GRACE_SECONDS


def views(cluster: World) -> Sequence[ReplicaState]:
    return cluster.state.replica_states


def verdict(cluster: World, restarts: int = 0) -> Completion | None:
    state = cluster.state
    causes = state.restart_causes
    return job_completion(state.plan, state.replica_states, state.unfinished, causes, causes, restarts, None, state.now)


def failed(cluster: World) -> list[str]:
    return [view.replica.id for view in cluster.state.restart_causes]


def test_all_that_are_needed_must_succeed_and_no_others() -> None:
    cluster = running_train_world(command=["mpirun", "x"])
    assert not has_succeeded(cluster.plan, views(cluster))
    ends(cluster, "launcher-0")
    assert has_succeeded(cluster.plan, views(cluster))
    cluster = running_train_world()
    ends(cluster, "node-0")
    assert not has_succeeded(cluster.plan, views(cluster))
    ends(cluster, "node-1")
    assert has_succeeded(cluster.plan, views(cluster))


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        (0, []),
        (1, []),
        (137, ["node-1"]),
    ],
)
def test_what_may_be_tried_again_starts_the_set_again(exit_code: int, expected: list[str]) -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=exit_code)
    assert failed(cluster) == expected


def test_nothing_is_started_again_while_the_job_is_suspended() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    cluster.change(suspend=True)
    assert failed(cluster) == []


def test_a_tfjobs_replicas_are_started_again_one_by_one() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 137)
    assert failed(cluster) == []


def test_what_carries_data_starts_no_set_again() -> None:
    cluster = world_in_steps()
    cluster.settle()
    cluster.exits("dataset-initializer-0", 137)
    assert failed(cluster) == []


@pytest.mark.parametrize(
    ("limit", "restarts", "reason", "words"),
    [
        pytest.param(None, 10**6, None, "", id="no-limit"),
        pytest.param(2, 1, None, "", id="one-is-left"),
        pytest.param(2, 2, "BackoffLimitExceeded", "restarted 2 times, the limit of maxRestarts", id="none-is-left"),
        pytest.param(0, 0, "ReplicaFailed", "maxRestarts is 0", id="none-was-ever-allowed"),
    ],
)
def test_a_set_that_fails_once_too_often_ends_the_job(
    limit: int | None, restarts: int, reason: str | None, words: str
) -> None:
    cluster = running_train_world(maxRestarts=limit)
    ends(cluster, "node-1", exit_code=137)
    found = verdict(cluster, restarts)
    assert (found.reason if found is not None else None) == reason
    if found is not None:
        assert found.message == f"node-1 failed: exit code 137; {words}"
        assert not found.succeeded


def test_a_limit_that_is_reached_ends_nothing_as_long_as_nobody_fails() -> None:
    assert verdict(running_train_world(maxRestarts=0)) is None


def test_the_message_of_a_success_names_the_replica() -> None:
    cluster = running_train_world(nodes=1)
    ends(cluster, "node-0")
    assert verdict(cluster) == Completion(True, "ChiefSucceeded", "node-0 succeeded")
    cluster = running_train_world(nodes=2)
    ends(cluster, "node-0", "node-1")
    assert verdict(cluster) == Completion(True, "ChiefSucceeded", "all 2 nodes succeeded")


def test_a_permanent_error_of_any_node_is_the_jobs() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=1)
    cluster.advance(GRACE_SECONDS)
    found = verdict(cluster)
    assert found is not None
    assert (found.succeeded, found.reason) == (False, "ReplicaFailed")
    assert found.message.startswith("node-1 failed: exit code 1")


INITIALIZERS = ("dataset-initializer-0", "model-initializer-0")


def due(cluster: World) -> Step:
    return cluster.state.step


def ids(step: Step) -> list[str]:
    return [each.id for each in step.plan.replicas.all]


def test_a_job_without_steps_is_one() -> None:
    cluster = running_train_world()
    step = due(cluster)
    assert step.plan.steps == ()
    assert ids(step) == [view.replica.id for view in step.replica_states] == ["node-0", "node-1"]
    assert (step.completed, step.is_first) == ((), True)


@pytest.mark.parametrize(
    ("done", "expected", "past", "is_first"),
    [
        pytest.param((), list(INITIALIZERS), 0, True, id="the-first"),
        pytest.param(INITIALIZERS[:1], list(INITIALIZERS), 0, True, id="a-part-of-it-is-not-enough"),
        pytest.param(INITIALIZERS, ["node-0", "node-1"], 2, False, id="the-second"),
        pytest.param((*INITIALIZERS, "node-1"), ["node-0", "node-1"], 2, False, id="all-nodes-are-needed"),
        pytest.param((*INITIALIZERS, "node-0", "node-1"), ["model-exporter-0"], 4, False, id="the-last"),
        pytest.param(
            (*INITIALIZERS, "node-0", "node-1", "model-exporter-0"), ["model-exporter-0"], 4, False, id="of-a-job-done"
        ),
    ],
)
def test_a_step_is_due_when_those_before_it_are_done(
    done: tuple[str, ...], expected: list[str], past: int, is_first: bool
) -> None:
    cluster = world_in_steps()
    for each in done:
        cluster.settle()
        ends(cluster, each)
    step = due(cluster)
    assert ids(step) == expected
    assert (len(step.completed), step.is_first) == (past, is_first)
    assert {view.replica.id for view in step.completed} <= set(done)


def test_a_step_sees_its_own_children_alone() -> None:
    cluster = world_in_steps()
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    cluster.all_run()
    step = due(cluster)
    names = {cluster.replica(each).name for each in ("node-0", "node-1")}
    assert set(step.observed.jobs) == set(step.observed.pods) == names
