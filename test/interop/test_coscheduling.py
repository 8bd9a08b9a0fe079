"""TFJobs and TrainJobs with the real plugin coscheduling and its controller: `make interop WITH=coscheduling`.

There are no queues: all jobs share the CPUs of one node.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers import gangrules
from helpers.cluster import Cluster, new_namespace
from helpers.gangjobs import (
    HIGH,
    KINDS,
    PERIOD_SECONDS,
    GangJobs,
    RunningAddon,
    gang_cluster,
    gang_jobs,
    make_priority_class,
)
from helpers.poll import never

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with gang_cluster(gangrules.CAPACITY) as cluster:
        make_priority_class(cluster.api)
        RunningAddon(cluster, "coscheduling").run_with({})
        yield cluster


@pytest.fixture(params=KINDS)
def gangs(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[GangJobs]:
    with gang_jobs(cluster, request.param, "coscheduling", new_namespace(cluster.api)) as jobs:
        yield jobs


class TestOfCoscheduling(gangrules.GangRules, gangrules.MinimumRules): ...


def test_a_job_of_a_higher_priority_stops_no_other_job_and_is_the_next_to_run(gangs: GangJobs) -> None:
    """The plugin refuses a gang whose `minResources` are not free before kube-scheduler could preempt for it."""
    gangs.submit("low", 2)
    gangs.await_running("low", 2)
    gangs.submit("later", 2)
    gangs.await_reason("later", "waits for capacity")
    gangs.submit("high", gangrules.CAPACITY, priority_class=HIGH)
    gangs.await_reason("high", "waits for capacity")
    never(lambda: len(gangs.bound("low")) < 2, gangrules.WATCHED_SECONDS, PERIOD_SECONDS)
    gangs.finish("low")
    gangs.await_running("high", gangrules.CAPACITY)
    assert gangs.bound("later") == []
    gangs.finish("high")
    gangs.await_running("later", 2)
