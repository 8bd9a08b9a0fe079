"""The rules of jobs/state/evaluation.py: what is seen of a set whose Jobs somebody deletes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from helpers.clusterinmemory import World, running_world
from helpers.manifests import master, workers
from helpers.trainworld import ends, running_train_world, train_world
from tfjob_controller.api.common.core import Condition
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.util.timestamps import format_time


def views(cluster: World) -> Mapping[str, ReplicaState]:
    return {state.replica.id: state for state in cluster.state.replica_states}


def restarting(cluster: World) -> set[str]:
    return {id_ for id_, view in views(cluster).items() if view.is_restarting}


def vanishes(cluster: World, with_pods: bool) -> None:
    name = cluster.name("node-1")
    if with_pods:
        cluster.delete_job(name)
    else:
        del cluster.jobs[name]
        cluster.told_to_go(name)


@pytest.mark.parametrize("with_pods", [False, True])
def test_a_node_whose_job_somebody_deleted_is_to_be_started_again(with_pods: bool) -> None:
    cluster = running_train_world()
    vanishes(cluster, with_pods)
    assert restarting(cluster) == {"node-0", "node-1"}


def test_a_job_that_is_being_deleted_counts_as_deleted() -> None:
    cluster = running_train_world()
    cluster._begin_deletion(cluster.name("node-1"))
    assert restarting(cluster) == {"node-0", "node-1"}


def test_jobs_that_were_never_made_are_missed_by_nobody() -> None:
    cluster = train_world()
    assert restarting(cluster) == set()
    cluster.settle()
    cluster.change(suspend=True)
    cluster.settle()
    assert restarting(cluster) == set()


def test_a_set_that_has_succeeded_needs_its_job_no_more() -> None:
    cluster = running_train_world()
    ends(cluster, "node-0", "node-1")
    cluster.settle()
    vanishes(cluster, with_pods=True)
    assert restarting(cluster) == set()


def test_of_a_set_that_has_lost_its_job_those_that_succeeded_run_again_as_well() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1")
    cluster.settle()
    vanishes(cluster, with_pods=True)
    assert restarting(cluster) == {"node-0", "node-1"}


def test_of_a_tfjob_a_job_that_is_gone_is_simply_recreated() -> None:
    cluster = running_world()
    cluster.delete_job(cluster.name("worker-0"))
    assert restarting(cluster) == set()


@pytest.mark.parametrize("replica_id", ["master-0", "worker-0"])
def test_an_evicted_replica_that_ended_with_0_has_not_succeeded_when_its_pod_has_gone(replica_id: str) -> None:
    """Its kubelet may delete the pod after the restart was recorded, and before the Job is deleted for it."""
    cluster = running_world(master(), workers(1))
    evicted = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
    cluster.exits(replica_id, 0, "Completed")
    cluster.pod(replica_id, conditions=(evicted,))
    cluster.told_to_go(cluster.name(replica_id))
    cluster.job_ends(replica_id, "Complete")
    cluster.sync()
    assert cluster.status.restarts == 1
    old = cluster.jobs[cluster.name(replica_id)].metadata.uid
    cluster.pods[cluster.name(replica_id)] = []
    cluster.settle()
    assert (cluster.status.phase, cluster.status.succeeded_indexes) == ("Running", ())
    assert cluster.jobs[cluster.name(replica_id)].metadata.uid != old
    assert cluster.status.restarts == 1
    cluster.runs(replica_id, newest=True)
    cluster.exits(replica_id, 0, "Completed")
    cluster.job_ends(replica_id, "Complete")
    cluster.settle()
    assert replica_id in cluster.status.succeeded_indexes
