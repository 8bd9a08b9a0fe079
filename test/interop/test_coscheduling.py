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

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


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


def test_a_job_that_fits_runs_and_leaves_no_object_behind(gangs: GangJobs) -> None:
    gangrules.a_job_that_fits_runs_and_leaves_no_object_behind(gangs)


def test_a_job_that_does_not_fit_starts_only_when_there_is_room_for_all_of_it(gangs: GangJobs) -> None:
    gangrules.a_job_that_does_not_fit_starts_only_when_there_is_room_for_all_of_it(gangs)


def test_two_jobs_that_do_not_fit_together_run_one_after_the_other(gangs: GangJobs) -> None:
    gangrules.two_jobs_that_do_not_fit_together_run_one_after_the_other(gangs)


def test_a_suspended_job_gives_its_capacity_back_and_queues_again_when_it_is_resumed(gangs: GangJobs) -> None:
    gangrules.a_suspended_job_gives_its_capacity_back_and_queues_again_when_it_is_resumed(gangs)


def test_a_pod_that_is_deleted_is_replaced_and_runs_with_the_others(gangs: GangJobs) -> None:
    gangrules.a_pod_that_is_deleted_is_replaced_and_runs_with_the_others(gangs)


def test_a_job_with_a_minimum_starts_with_those_that_fit_and_gets_the_rest_later(gangs: GangJobs) -> None:
    gangrules.a_job_with_a_minimum_starts_with_those_that_fit_and_gets_the_rest_later(gangs)


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
