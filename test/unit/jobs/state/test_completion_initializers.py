"""Initializers and exporters that cannot start, or end again and again: their job ends, and says why."""

from __future__ import annotations

import pytest

from helpers.clusterinmemory import World, terminated, waiting
from helpers.trainworld import IN_STEPS, ends, train_world, true_conditions, world_in_steps
from tfjob_controller.api.common.core import Terminated
from tfjob_controller.jobs.state.completion import CONFIG_WAIT_SECONDS, MAX_TRANSFER_ATTEMPTS
from tfjob_controller.jobs.state.restarts import CAP_SECONDS
from tfjob_controller.util.timestamps import format_time

DATASET, MODEL, EXPORTER = "dataset-initializer-0", "model-initializer-0", "model-exporter-0"
NO_SECRET = 'secret "bucket-keys" not found'
NO_CONFIG = "CreateContainerConfigError"


def at_step_of(carrier: str) -> World:
    """That carrier's Job is there."""
    cluster = world_in_steps()
    cluster.settle()
    if carrier == EXPORTER:
        ends(cluster, DATASET, MODEL)
        cluster.settle()
        ends(cluster, "node-0", "node-1")
        cluster.settle()
    return cluster


def waits_for_config(cluster: World, carrier: str, message: str = NO_SECRET) -> None:
    container = carrier.rpartition("-")[0]
    cluster.pod(carrier, phase="Pending", container_statuses=(waiting(NO_CONFIG, message, name=container),))


def seconds_until_it_fails(cluster: World) -> float:
    """Nothing happens, and it is looked at only when it asked for that."""
    began = cluster.now
    while (due := cluster.settle().wake_after_seconds) is not None and cluster.job.status.state != "FAILED":
        cluster.advance(due)
    assert cluster.job.status.state == "FAILED"
    return (cluster.now - began).total_seconds()


@pytest.mark.parametrize("message", [NO_SECRET, "couldn't find key HF_TOKEN in Secret ns/hub-token"])
@pytest.mark.parametrize("carrier", [DATASET, MODEL, EXPORTER])
def test_a_job_whose_initializer_or_exporter_lacks_a_secret_says_so_and_fails_after_a_while(
    carrier: str, message: str
) -> None:
    cluster = at_step_of(carrier)
    waits_for_config(cluster, carrier, message)
    cluster.settle()
    assert cluster.job.status.reason == f"{carrier}: {NO_CONFIG}: {message}"
    assert seconds_until_it_fails(cluster) == CONFIG_WAIT_SECONDS
    status = cluster.job.status
    assert status.reason == f"{carrier} failed: {NO_CONFIG}: {message} (waited for {CONFIG_WAIT_SECONDS} s)"
    assert (status.state, true_conditions(cluster)) == ("FAILED", {"Created", "Failed"})
    assert cluster.jobs[cluster.name(carrier)].spec.suspend


def test_a_secret_that_comes_in_time_is_waited_for() -> None:
    cluster = at_step_of(DATASET)
    waits_for_config(cluster, DATASET)
    cluster.settle()
    cluster.advance(CONFIG_WAIT_SECONDS - 1)
    cluster.runs(DATASET)
    cluster.settle()
    cluster.advance(CONFIG_WAIT_SECONDS)
    cluster.settle()
    assert cluster.job.status.state == ""


def test_a_suspended_job_does_not_fail_for_a_secret() -> None:
    cluster = at_step_of(DATASET)
    cluster.stops_slowly = True
    waits_for_config(cluster, DATASET)
    cluster.change(suspend=True)
    cluster.settle()
    cluster.advance(CONFIG_WAIT_SECONDS)
    cluster.settle()
    assert true_conditions(cluster) == {"Created", "Suspended"}


def test_one_within_a_node_waits_as_long_counted_from_the_end_of_the_one_before_it() -> None:
    cluster = train_world(**{key: value for key, value in IN_STEPS.items() if key == "datasetConfig"})
    cluster.settle()
    cluster.pod("node-0", phase="Pending")
    cluster.advance(1000)
    done = Terminated(0, "Completed", finished_at=format_time(cluster.now))
    before = terminated(done, name="another")
    stuck = waiting(NO_CONFIG, NO_SECRET, name="dataset-initializer")
    cluster.pod("node-0", init_container_statuses=(before, stuck))
    assert seconds_until_it_fails(cluster) == CONFIG_WAIT_SECONDS
    assert cluster.job.status.reason.startswith(f"node-0 failed: dataset-initializer: {NO_CONFIG}: {NO_SECRET} (")


def test_what_a_nodes_own_container_waits_for_is_waited_for() -> None:
    cluster = train_world()
    cluster.settle()
    cluster.pod("node-0", phase="Pending", container_statuses=(waiting(NO_CONFIG, NO_SECRET, name="node"),))
    cluster.advance(10 * CONFIG_WAIT_SECONDS)
    cluster.settle()
    assert cluster.job.status.reason.startswith(f"node-0: {NO_CONFIG}: {NO_SECRET}")
    assert true_conditions(cluster) == {"Created"}


def fails_in_place(cluster: World, carrier: str, attempts: int) -> None:
    """It waits for the kubelet's back-off after so many attempts."""
    ended = Terminated(203, "Error", "no connection", finished_at=format_time(cluster.now))
    name = carrier.rpartition("-")[0]
    status = waiting("CrashLoopBackOff", name=name, last=ended, restart_count=attempts - 1)
    cluster.pod(carrier, phase="Running", container_statuses=(status,))


@pytest.mark.parametrize("carrier", [DATASET, EXPORTER])
def test_an_initializer_or_exporter_has_a_limit_of_retries(carrier: str) -> None:
    cluster = at_step_of(carrier)
    fails_in_place(cluster, carrier, MAX_TRANSFER_ATTEMPTS - 1)
    cluster.settle()
    assert cluster.job.status.state != "FAILED"
    fails_in_place(cluster, carrier, MAX_TRANSFER_ATTEMPTS)
    cluster.settle()
    status = cluster.job.status
    assert status.reason == f"{carrier} failed: exit code 203: no connection; tried {MAX_TRANSFER_ATTEMPTS} times"
    assert (status.state, status.conditions[-1].reason) == ("FAILED", "BackoffLimitExceeded")


def test_the_last_attempt_may_still_succeed() -> None:
    cluster = at_step_of(DATASET)
    fails_in_place(cluster, DATASET, MAX_TRANSFER_ATTEMPTS - 1)
    cluster.settle()
    cluster.runs(DATASET, restart_count=MAX_TRANSFER_ATTEMPTS - 1)
    cluster.settle()
    assert cluster.job.status.state != "FAILED"
    ends(cluster, DATASET, MODEL)
    cluster.settle()
    assert cluster.name("node-0") in cluster.jobs


@pytest.mark.parametrize(
    "evicted", [{}, {"reason": "Evicted", "message": "Usage of EmptyDir volume exceeds the limit"}]
)
def test_each_pod_that_failed_is_an_attempt(evicted: dict[str, str]) -> None:
    """Where the server knows no restart policies of containers, a template says Never, or it exceeded its own limit."""
    cluster = at_step_of(DATASET)
    for _ in range(MAX_TRANSFER_ATTEMPTS):
        cluster.exits(DATASET, 203, "Error", message="no connection")
        cluster.pod(DATASET, **evicted)
        cluster.settle()
        cluster.reap()
        cluster.advance(CAP_SECONDS)
        cluster.settle()
        cluster.reap()
        cluster.settle()
    words = ": ".join(evicted.values()) or "exit code 203: no connection"
    assert cluster.job.status.reason == f"{DATASET} failed: {words}; tried {MAX_TRANSFER_ATTEMPTS} times"
