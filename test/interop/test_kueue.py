"""TFJobs and TrainJobs with the real Kueue, its webhooks and its quotas: `make interop WITH=kueue`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import gangrules
from helpers.cluster import Cluster, new_namespace
from helpers.gangjobs import KINDS, NODE, PERIOD_SECONDS, GangJobs, RunningAddon, gang_cluster, gang_jobs, retried
from helpers.kueuequeue import QUEUE_LABEL, Queue, make_queue
from helpers.playground import condition
from helpers.podwatch import watching_pods
from helpers.poll import eventually, never

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

# A fight makes the pods of the creation and of two resumes at once, and then waits a minute.
FIGHT_SECONDS = 60
MAX_ROUNDS = 4
EXTERNAL = ["TFJob.v1alpha1.kubeflow.org", "TrainJob.v2alpha1.kubeflow.org"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with gang_cluster(cpus=16) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def any_kueue(cluster: Cluster) -> RunningAddon:
    return RunningAddon(cluster, "kueue")


@pytest.fixture
def kueue(any_kueue: RunningAddon) -> RunningAddon:
    """Kueue with its defaults."""
    any_kueue.run_with({})
    return any_kueue


@pytest.fixture
def queue(kueue: RunningAddon, cluster: Cluster) -> Iterator[Queue]:
    """A queue of its own with a quota of 3 CPUs."""
    queue = Queue(cluster.api, new_namespace(cluster.api))
    retried(lambda: make_queue(queue, gangrules.CAPACITY))
    yield queue
    cluster.api.delete(queue.path)


@pytest.fixture(params=KINDS)
def gangs(queue: Queue, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[GangJobs]:
    with gang_jobs(cluster, request.param, "kueue", queue.name) as jobs:
        yield jobs


class TestOfKueue(gangrules.GangRules, gangrules.QueueRules): ...


def test_a_job_that_is_preempted_stops_queues_again_and_continues(gangs: GangJobs) -> None:
    gangrules.a_job_that_is_preempted_stops_queues_again_and_continues(gangs, priority=10)
    assert gangs.restarts("low") == 0


def test_a_job_that_waits_for_its_quota_has_no_pod(gangs: GangJobs) -> None:
    gangs.submit("first", 2)
    gangs.await_running("first", 2)
    gangs.submit("second", 2)
    gangs.await_reason("second", "waits for capacity", "insufficient")
    never(lambda: gangs.pods("second"), 2, PERIOD_SECONDS)


def test_a_job_without_a_queue_reports_the_missing_label(gangs: GangJobs) -> None:
    gangs.submit("first", 1, queue="")
    gangs.await_reason("first", QUEUE_LABEL)
    assert gangs.pods("first") == {}


def test_a_queue_that_is_drained_stops_its_jobs_and_starts_them_again_later(gangs: GangJobs, queue: Queue) -> None:
    gangs.submit("first", 2)
    gangs.await_running("first", 2)
    gangs.api.patch(queue.path, {"spec": {"stopPolicy": "HoldAndDrain"}})
    gangs.await_stopped("first")
    eventually(lambda: queue.used() == "0", period=PERIOD_SECONDS)
    gangs.api.patch(queue.path, {"spec": {"stopPolicy": "None"}})
    gangs.await_running("first", 2)


def test_an_admitted_job_whose_pods_find_no_node_reports_the_reason(gangs: GangJobs) -> None:
    node = f"/api/v1/nodes/{NODE}"
    gangs.api.patch(node, {"spec": {"unschedulable": True}})
    try:
        gangs.submit("first", 2)
        gangs.await_reason("first", "waits for capacity", "nodes are available")
        assert condition(gangs.jobs.status("first"), "Scheduled")["reason"] == "WaitingForCapacity"
    finally:
        gangs.api.patch(node, {"spec": {"unschedulable": None}})
    gangs.await_running("first", 2)


def test_where_kueue_manages_all_jobs_the_controller_gives_way_and_names_it(
    gangs: GangJobs, any_kueue: RunningAddon
) -> None:
    any_kueue.run_with({"manageJobsWithoutQueueName": True})
    with watching_pods(gangs.api, gangs.namespace) as seen:
        started = time.monotonic()
        retried(lambda: gangs.submit("first", 2))
        words = gangs.await_reason("first", "keeps suspending Job", "externalFrameworks")
        assert condition(gangs.jobs.status("first"), "ChangesReverted")["status"] == "True"
        # Its webhook suspends a Job as it is created; its controller would patch one that exists.
        assert words.startswith(("an admission webhook", "another client (kueue)"))
        eventually(lambda: time.monotonic() > started + FIGHT_SECONDS, FIGHT_SECONDS, 1.0)
        assert len(seen.pods) <= 2 * MAX_ROUNDS
    events = [each for each in gangs.jobs.events() if each["reason"] == "ChangeReverted"]
    assert len(events) == 1


def test_with_its_kinds_as_external_frameworks_kueue_leaves_the_children_alone(
    gangs: GangJobs, any_kueue: RunningAddon
) -> None:
    integrations = {"frameworks": ["batch/job"], "externalFrameworks": EXTERNAL}
    any_kueue.run_with({"manageJobsWithoutQueueName": True, "integrations": integrations})
    retried(lambda: gangs.submit("first", 2))
    gangs.await_running("first", 2)
    assert condition(gangs.jobs.status("first"), "ChangesReverted") == {"status": "absent"}
    gangs.finish("first")
