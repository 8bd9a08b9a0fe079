"""The rules of trainer/steps.py: which step is due."""

from __future__ import annotations

import pytest

from helpers.clusterinmemory import World
from helpers.trainworld import ends, running_train_world, train_world, world_in_steps
from tfjob_controller.trainer.steps import Step, due_step
from tfjob_controller.trainer.views import views_of

INITIALIZERS = ("dataset-initializer-0", "model-initializer-0")


def due(cluster: World) -> Step:
    plan, observed = cluster.plan, cluster.observed
    return due_step(plan, views_of(plan, observed, cluster.status, cluster.now), observed)


def ids(step: Step) -> list[str]:
    return [each.id for each in step.plan.replicas]


def test_a_job_without_steps_is_one() -> None:
    cluster = running_train_world()
    step = due(cluster)
    assert step.plan.steps == ()
    assert ids(step) == [view.replica.id for view in step.views] == ["node-0", "node-1"]
    assert (step.past, step.is_first) == ((), True)


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
    assert (len(step.past), step.is_first) == (past, is_first)
    assert {view.replica.id for view in step.past} <= set(done)


def test_a_step_sees_its_own_children_alone() -> None:
    cluster = world_in_steps()
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    cluster.all_run()
    step = due(cluster)
    names = {cluster.name("node-0"), cluster.name("node-1")}
    assert set(step.observed.jobs) == set(step.observed.pods) == names


def test_with_mpi_the_second_step_is_over_when_the_launcher_is() -> None:
    cluster = world_in_steps(command=["mpirun", "train"])
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    cluster.all_run()
    ends(cluster, "launcher-0")
    step = due(cluster)
    assert ids(step) == ["model-exporter-0"]
    assert "node-0" in [view.replica.id for view in step.past]


def test_without_initializers_the_nodes_are_the_first() -> None:
    cluster = train_world()
    assert due(cluster).is_first
