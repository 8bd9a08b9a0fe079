"""Counting restarts over pods and Jobs that come and go.

The rules of trainer/state/restarts.py: how long a set waits before it is started again.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START, World, plan_of, running_world
from helpers.manifests import master, parameter_servers, pod_template, workers
from helpers.trainworld import train_plan
from tfjob_controller.api.common.core import Condition
from tfjob_controller.api.common.status import JobCondition, TrainingStatus
from tfjob_controller.trainer.state.restarts import (
    BASE_SECONDS,
    CAP_SECONDS,
    GONE,
    MAX_GONE,
    backoff_seconds,
    seconds_until_restart,
)
from tfjob_controller.util.timestamps import format_time

NEVER = pod_template({"name": "tensorflow"}, restartPolicy="Never")


def restarts(cluster: World) -> int:
    cluster.settle()
    return cluster.job.status.restarts


def test_restarts_in_place_and_by_the_job_controller_are_added_up() -> None:
    cluster = running_world()
    assert (restarts(cluster), cluster.job.status.restart_counts) == (0, {})
    cluster.runs("worker-0", restart_count=2)
    cluster.job_status("ps-0", failed=3)
    assert restarts(cluster) == 5


def test_restarts_of_pods_that_are_gone_still_count() -> None:
    cluster = running_world()
    cluster.runs("worker-0", restart_count=2)
    assert restarts(cluster) == 2
    cluster.pods.clear()
    assert restarts(cluster) == 2
    cluster.runs("worker-0", restart_count=1)
    assert restarts(cluster) == 3


def test_a_count_never_falls() -> None:
    cluster = running_world()
    cluster.job_status("ps-0", failed=3)
    assert restarts(cluster) == 3
    cluster.job_status("ps-0", failed=1)
    assert restarts(cluster) == 3


def test_a_parameter_server_that_is_recreated_counts() -> None:
    cluster = running_world()
    for _ in range(3):
        cluster.exits("ps-0", 0)
        cluster.job_ends("ps-0", "Complete")
        cluster.sync()
        cluster.settle()
        cluster.runs("ps-0")
    assert restarts(cluster) == 3


def test_the_failure_that_a_job_ends_with_is_no_restart() -> None:
    cluster = running_world(master(template=NEVER))
    cluster.exits("master-0", 1)
    cluster.job_status("master-0", failed=1)
    cluster.job_ends("master-0", "FailureTarget")
    assert restarts(cluster) == 0


def test_a_disruption_counts_where_the_jobs_own_count_leaves_it_out() -> None:
    cluster = running_world(master(), workers(1))
    for replica_id in ("master-0", "worker-0"):
        cluster.exits(replica_id, 137)
        cluster.pod(replica_id, conditions=(Condition("DisruptionTarget", "True", last_transition_time="2026"),))
    cluster.job_status("worker-0", failed=1)
    assert restarts(cluster) == 2


def test_more_restarts_than_the_limit_fail_the_job() -> None:
    cluster = running_world(backoffLimit=2)
    cluster.runs("worker-0", restart_count=2)
    assert restarts(cluster) == 2
    assert cluster.job.status.phase == "Running"
    cluster.job_status("ps-1", failed=1)
    assert restarts(cluster) == 3
    assert cluster.job.status.phase == "Failed"
    assert cluster.job.status.reason == "BackoffLimitExceeded: 3 restarts of replicas, backoffLimit is 2"


def test_the_event_of_a_restart_names_the_replica() -> None:
    cluster = running_world(master(), workers(7), parameter_servers(1))
    cluster.events.clear()
    for index in range(7):
        cluster.runs(f"worker-{index}", restart_count=1)
    cluster.settle()
    (event,) = cluster.events
    assert (event.type, event.reason) == ("Warning", "Restarted")
    assert event.note == ("Restarted worker-0, worker-1, worker-2, worker-3, worker-4 and 2 more: 7 restarts so far")


def test_counts_of_many_pods_that_are_gone_are_summed_up() -> None:
    cluster = running_world()
    for _ in range(3 * MAX_GONE):
        cluster.pods.clear()
        cluster.runs("worker-0", newest=True)
        cluster.runs("worker-0", restart_count=1)
        cluster.sync()
    assert restarts(cluster) == 3 * MAX_GONE
    assert GONE in cluster.job.status.restart_counts
    assert len(cluster.job.status.restart_counts) <= MAX_GONE + 2


def test_an_evicted_chief_that_ended_with_0_is_one_restart_and_its_job_goes_on() -> None:
    """The kubelet lets an evicted pod fail whatever its containers said, and the Job makes the next one by itself."""
    cluster = running_world(master(template=NEVER))
    disrupted = Condition("DisruptionTarget", "True")
    cluster.exits("master-0", 0, phase="Failed")
    cluster.pod("master-0", reason="Evicted", conditions=(disrupted,))
    jobs = dict(cluster.jobs)
    assert restarts(cluster) == 1
    assert cluster.jobs == jobs


def restarting(restarts: int, status: str = "True") -> TrainingStatus:
    said = JobCondition("Restarting", status, "ReplicasRestarting", "", format_time(START), 1)
    return TrainingStatus(phase="Running", restarts=restarts, conditions=(said,))


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(0, 0), (1, 0), (2, BASE_SECONDS), (3, 2 * BASE_SECONDS), (6, 160), (7, CAP_SECONDS), (10**9, CAP_SECONDS)],
)
def test_each_restart_but_the_first_waits_twice_as_long_up_to_a_cap(restarts: int, seconds: int) -> None:
    assert backoff_seconds(restarts) == seconds


@pytest.mark.parametrize(("passed", "left"), [(0, 20), (15, 5), (20, 0), (100, 0)])
def test_the_time_counts_from_the_failure(passed: int, left: int) -> None:
    assert seconds_until_restart(train_plan(), restarting(3), START + timedelta(seconds=passed)) == left


def test_a_job_that_is_not_being_restarted_waits_for_nothing() -> None:
    assert seconds_until_restart(train_plan(), restarting(3, "False"), START) == 0
    assert seconds_until_restart(train_plan(), replace(restarting(3), conditions=()), START) == 0


def test_replicas_that_are_restarted_one_by_one_are_the_kubelets_affair() -> None:
    assert seconds_until_restart(plan_of(), restarting(3), START) == 0
