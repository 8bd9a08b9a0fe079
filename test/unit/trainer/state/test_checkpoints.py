"""The end of a job waits for its last checkpoint: trainer/state/checkpoints.py, and what the status makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.clusterinmemory import World
from helpers.trainworld import ends, running_train_world, sidecar
from tfjob_controller.api.common.core import ContainerState, Running, Terminated
from tfjob_controller.trainer.podtemplate.checkpoint import GRACE_SECONDS

CHECKPOINT = {"storageUri": "s3://b/c"}
RUNS = ContainerState(running=Running())
ENDED = ContainerState(terminated=Terminated(0))
# A kubelet may report the end of a pod some seconds late.
BOUND_SECONDS = GRACE_SECONDS + 5


def ended_world(**job: Any) -> World:
    """Both programs have ended well, and the container of node 0 that saves checkpoints still runs."""
    cluster = running_train_world(checkpoint=CHECKPOINT, **job)
    cluster.exits("node-1", 0)
    cluster.exits("node-0", 0, phase="Running")
    sidecar(cluster, "node-0", RUNS)
    return cluster


def has_ended(cluster: World) -> bool:
    return cluster.status.phase in ("CleanUp", "Done")


def test_a_job_has_not_ended_while_its_last_checkpoint_is_saved() -> None:
    cluster = ended_world()
    result = cluster.settle()
    assert (cluster.status.phase, cluster.status.state, cluster.status.summary) == ("Running", "Running", "Running")
    assert cluster.status.reason == "The last checkpoint is being saved: node-0"
    assert cluster.status.completion_time is None
    assert result.wake_after_seconds == BOUND_SECONDS
    assert not cluster.actions()
    sidecar(cluster, "node-0", ENDED)
    cluster.settle()
    assert has_ended(cluster)
    assert cluster.status.reason == "all 2 nodes succeeded"


def test_the_wait_is_bounded_by_the_grace_period_of_the_pod() -> None:
    cluster = ended_world()
    cluster.settle()
    cluster.advance(BOUND_SECONDS - 1)
    assert cluster.settle().wake_after_seconds == 1
    assert not has_ended(cluster)
    cluster.advance(1)
    cluster.settle()
    assert has_ended(cluster)


def test_the_successes_are_recorded_at_once() -> None:
    cluster = ended_world()
    result = cluster.sync()
    assert result.is_urgent
    assert cluster.status.succeeded_indexes == ("node-0", "node-1")
    assert not cluster.sync().is_urgent


def test_a_node_that_is_lost_meanwhile_takes_no_success_back() -> None:
    cluster = ended_world()
    cluster.settle()
    name = cluster.name("node-0")
    cluster.pods[name] = []
    cluster.settle()
    assert has_ended(cluster)
    assert cluster.status.state == "Succeeded"
    assert cluster.status.restarts == 0


def test_a_pod_that_is_deleted_meanwhile_has_its_grace_period() -> None:
    cluster = ended_world()
    cluster.advance(1)
    cluster.pod_deleted("node-0")
    cluster.settle()
    assert not has_ended(cluster)
    cluster.advance(BOUND_SECONDS)
    cluster.settle()
    assert (has_ended(cluster), cluster.status.state) == (True, "Succeeded")


@pytest.mark.parametrize("state", [ContainerState(), ENDED], ids=["waiting", "ended"])
def test_a_container_that_saves_nothing_is_not_waited_for(state: ContainerState) -> None:
    cluster = ended_world()
    sidecar(cluster, "node-0", state)
    cluster.settle()
    assert has_ended(cluster)


def test_nor_is_one_of_a_job_without_checkpoints() -> None:
    cluster = running_train_world()
    cluster.exits("node-1", 0)
    cluster.exits("node-0", 0, phase="Running")
    sidecar(cluster, "node-0", RUNS)
    cluster.settle()
    assert has_ended(cluster)


def test_with_checkpoints_of_each_node_all_are_waited_for() -> None:
    cluster = running_train_world(checkpoint={**CHECKPOINT, "perNode": True})
    for node in ("node-0", "node-1"):
        cluster.exits(node, 0, phase="Running")
        sidecar(cluster, node, RUNS)
    cluster.settle()
    assert cluster.status.reason == "The last checkpoint is being saved: node-0, node-1"
    sidecar(cluster, "node-0", ENDED)
    cluster.settle()
    assert cluster.status.reason == "The last checkpoint is being saved: node-1"


def test_a_failed_job_waits_for_nothing() -> None:
    cluster = running_train_world(checkpoint=CHECKPOINT)
    ends(cluster, "node-0", exit_code=1)
    sidecar(cluster, "node-0", RUNS)
    cluster.advance(10)
    cluster.settle()
    assert cluster.status.state == "Failed"
