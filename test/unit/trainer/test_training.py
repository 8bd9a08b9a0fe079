"""The rules of trainer/training.py, as far as a job's set is concerned: has it succeeded, must it start again?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helpers.clusterinmemory import World, running_world
from helpers.trainworld import ends, running_train_world, world_in_steps
from tfjob_controller.trainer.blame import GRACE_SECONDS
from tfjob_controller.trainer.replicas import View
from tfjob_controller.trainer.training import Verdict, has_succeeded, judge


def views(cluster: World) -> Sequence[View]:
    return cluster.state.views


def verdict(cluster: World, restarts: int = 0) -> Verdict | None:
    state = cluster.state
    return judge(state.plan, state.views, state.unfinished, state.restart_causes, restarts, None, state.now)


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


def test_where_nobody_says_who_is_needed_it_is_the_chief() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 0)
    assert not has_succeeded(cluster.plan, views(cluster))
    cluster.exits("master-0", 0)
    assert has_succeeded(cluster.plan, views(cluster))


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [(0, []), (1, []), (127, []), (137, ["node-1"]), (143, ["node-1"]), (255, ["node-1"])],
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
        pytest.param(2, 2, "BackoffLimitExceeded", "restarted 2 times, as often as maxRestarts", id="none-is-left"),
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
        assert found.words == f"node-1 failed: exit code 137; {words}"
        assert not found.succeeded


def test_a_limit_that_is_reached_ends_nothing_as_long_as_nobody_fails() -> None:
    assert verdict(running_train_world(maxRestarts=0)) is None


def test_success_is_told_by_whom() -> None:
    cluster = running_train_world(nodes=1)
    ends(cluster, "node-0")
    assert verdict(cluster) == Verdict(True, "ChiefSucceeded", "node-0 succeeded")
    cluster = running_train_world(nodes=2)
    ends(cluster, "node-0", "node-1")
    assert verdict(cluster) == Verdict(True, "ChiefSucceeded", "all 2 nodes succeeded")


def test_a_permanent_error_of_any_node_is_the_jobs() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=1)
    cluster.advance(GRACE_SECONDS)
    found = verdict(cluster)
    assert found is not None
    assert (found.succeeded, found.reason) == (False, "ReplicaFailed")
    assert found.words.startswith("node-1 failed: exit code 1")
