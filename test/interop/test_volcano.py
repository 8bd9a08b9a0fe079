"""TFJobs and TrainJobs with the real Volcano, its webhooks and its queues: `make interop WITH=volcano`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers import gangrules
from helpers.cluster import Cluster, new_namespace
from helpers.gangjobs import (
    HIGH,
    KINDS,
    PATIENCE_SECONDS,
    PERIOD_SECONDS,
    GangJobs,
    RunningAddon,
    gang_cluster,
    gang_jobs,
    make_priority_class,
    retried,
)
from helpers.poll import eventually
from localcluster.api import Api

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
# Each queue of the tests may use 3 of them.
NODE_CPUS = 4
# The default has neither `preempt` nor `reclaim`. `enqueue` would keep a job that needs them out of the queue.
EVICTING = {"actions": "allocate, preempt, reclaim, backfill"}
# Elastic TrainJobs have not been seen to work with Volcano.


@dataclass(frozen=True, slots=True)
class Queue:
    """A Queue with the name of its namespace."""

    api: Api
    name: str

    @property
    def path(self) -> str:
        return f"{QUEUES}/{self.name}"

    def used(self) -> str:
        """Returns the CPUs that Volcano counts as allocated."""
        allocated = self.api.get(self.path).get("status", {}).get("allocated") or {}
        return str(allocated.get("cpu", "0"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with gang_cluster(NODE_CPUS) as cluster:
        make_priority_class(cluster.api)
        yield cluster


@pytest.fixture(scope="module")
def any_volcano(cluster: Cluster) -> RunningAddon:
    return RunningAddon(cluster, "volcano")


@pytest.fixture
def volcano(any_volcano: RunningAddon) -> RunningAddon:
    """Volcano with its defaults."""
    any_volcano.run_with({})
    return any_volcano


@pytest.fixture
def queue(volcano: RunningAddon, cluster: Cluster) -> Queue:
    """A queue of its own with a quota of 3 CPUs."""
    return make_queue(cluster.api, new_namespace(cluster.api), gangrules.CAPACITY)


@pytest.fixture(params=KINDS)
def gangs(queue: Queue, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[GangJobs]:
    with gang_jobs(cluster, request.param, "volcano", queue.name, queue=queue.name) as jobs:
        yield jobs


def make_queue(api: Api, name: str, cpus: int) -> Queue:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"cpu": str(cpus)}},
    }
    retried(lambda: api.create(QUEUES, body) and None)
    queue = Queue(api, name)
    # PodGroups of a queue are refused until Volcano has opened it.
    eventually(lambda: api.get(queue.path).get("status", {}).get("state") == "Open", PATIENCE_SECONDS, PERIOD_SECONDS)
    return queue


class TestOfVolcano(gangrules.GangRules, gangrules.MinimumRules, gangrules.QueueRules): ...


def test_a_job_that_is_preempted_stops_queues_again_and_continues(gangs: GangJobs, any_volcano: RunningAddon) -> None:
    any_volcano.run_with(EVICTING)
    gangrules.a_job_that_is_preempted_stops_queues_again_and_continues(gangs, priority_class=HIGH)


def test_a_queue_reclaims_its_share_from_a_job_of_another_queue(gangs: GangJobs, any_volcano: RunningAddon) -> None:
    any_volcano.run_with(EVICTING)
    other = make_queue(gangs.api, f"{gangs.namespace}-other", NODE_CPUS)
    gangs.submit("greedy", NODE_CPUS, queue=other.name, minimum=1)
    gangs.await_running("greedy", NODE_CPUS)
    gangs.submit("modest", 2)
    gangs.await_running("modest", 2)
    eventually(lambda: len(gangs.bound("greedy")) == NODE_CPUS - 2, PATIENCE_SECONDS, PERIOD_SECONDS)
    gangs.finish("modest")
    gangs.await_running("greedy", NODE_CPUS)
