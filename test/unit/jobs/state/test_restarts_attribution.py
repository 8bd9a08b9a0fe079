"""The attribution in jobs/state/restarts.py: whose failure it is, where all replicas go on together."""

from __future__ import annotations

import pytest

from helpers.trainworld import ends, running_train_world
from tfjob_controller.jobs.state.restarts import GRACE_SECONDS


def test_a_permanent_error_counts_once_nobody_else_can_have_caused_it() -> None:
    cluster = running_train_world()
    ends(cluster, "node-0", exit_code=1)
    result = cluster.settle()
    assert cluster.job.status.phase == "Running"
    assert result.wake_after_seconds == GRACE_SECONDS
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert cluster.job.status.phase in ("CleanUp", "Failed")
    assert "node-0 failed: exit code 1" in cluster.job.status.reason


def test_a_single_node_is_the_cause_of_its_own_failure() -> None:
    cluster = running_train_world(nodes=1)
    ends(cluster, "node-0", exit_code=1)
    cluster.settle()
    assert cluster.job.status.phase in ("CleanUp", "Failed")


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_replica_that_fails_after_a_peer_was_killed_is_not_the_cause(seconds: float) -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    cluster.advance(seconds)
    ends(cluster, "node-0", exit_code=1)
    cluster.sync()
    assert (cluster.job.status.phase, cluster.status.restarts) == ("Running", 1)


def test_that_is_so_in_whichever_order_the_kubelets_tell_it() -> None:
    cluster = running_train_world()
    cluster.advance(1)
    ends(cluster, "node-0", exit_code=1)
    cluster.settle()
    cluster.advance(-1)
    cluster.exits("node-1", 137)
    cluster.advance(GRACE_SECONDS)
    cluster.sync()
    assert (cluster.job.status.phase, cluster.status.restarts) == ("Running", 1)


def test_the_first_replica_with_a_permanent_error_is_the_cause() -> None:
    cluster = running_train_world()
    ends(cluster, "node-0", exit_code=1)
    cluster.settle()
    cluster.advance(1)
    ends(cluster, "node-1", exit_code=134)
    cluster.settle()
    assert cluster.status.restarts == 0
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert cluster.job.status.phase in ("CleanUp", "Failed")
    assert cluster.status.restarts == 0
