"""Requests of a TFJob to an API server: their number per job, and none for a job that has ended or needs no change."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.atrest import await_rest
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS
from helpers.poll import eventually
from helpers.sentrequests import requests
from helpers.timing import shortest
from localcluster.api import Api
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


def lasting(seconds: float) -> Object:
    return {"metadata": {"annotations": {RUN_SECONDS: str(seconds)}}, **pod_template(container())}


@pytest.fixture
def proxy(control_plane: Cluster, kubectl: Kubectl, kubelet: FakeKubelet) -> Iterator[FaultProxy]:
    with FaultProxy(control_plane.own.server) as proxy:
        yield proxy


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


def syncs(manager: Manager) -> float:
    count = 0.0
    for family in manager.metrics.registry.collect():
        count += sum(each.value for each in family.samples if each.name == "controller_runtime_reconcile_total")
    return count


def test_a_job_costs_two_requests_for_each_replica_and_six_and_one_for_each_that_must_be_stopped(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, tmp_path: Path
) -> None:
    """The tutorial's job, with its two parameter servers, which run until they are stopped. The cheapest of some:
    where a machine is busy, replicas come up one by one, and how many are ready is written in between."""
    replicas = 4
    names = (f"job-{number}" for number in itertools.count())
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace):

        def cost() -> int:
            before, name = len(requests(proxy.seen)), next(names)
            roles = (master(template=lasting(2)), workers(1, template=lasting(1.8)), parameter_servers(2))
            jobs.submit(tfjob(*roles, name=name))
            jobs.await_phase("Done", name, PATIENCE_SECONDS)
            sent = requests(proxy.seen)[before:]
            assert sum(path.startswith("POST") for path in sent) == 2 * replicas + 1, sent
            stopped = [path for path in sent if path.startswith("PATCH") and "/jobs/" in path]
            assert len(stopped) == len(set(stopped)) <= replicas - 1, sent
            return len(sent) - len(stopped)

        assert shortest(cost, 2 * replicas + 7) <= 2 * replicas + 6


def test_a_job_that_has_all_it_needs_costs_nothing_whatever_happens_around_it(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, api: Api, tmp_path: Path
) -> None:
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace) as manager:
        jobs.submit(tfjob(master(), workers(2), parameter_servers(1)))
        wanted = {"master": "1/1", "worker": "2/2", "ps": "1/1"}
        eventually(lambda: jobs.status().get("ready") == wanted, PATIENCE_SECONDS, PERIOD_SECONDS)
        await_rest(manager, tfjobs=[jobs.get()])
        before, synced = len(requests(proxy.seen)), syncs(manager)
        touch = {"metadata": {"labels": {"touched": "yes"}}}
        pods, children = f"/api/v1/namespaces/{jobs.namespace}/pods", f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs"
        await_rest(
            manager,
            tfjobs=[jobs.change(touch)],
            pods=[api.patch(f"{pods}/{name}", touch) for name in jobs.children("pods")],
            jobs=[
                api.patch(f"{children}/{name}", {"metadata": {"annotations": {"touched": "yes"}}})
                for name in jobs.children("jobs")
            ],
        )
        assert syncs(manager) > synced
        assert requests(proxy.seen)[before:] == []


def test_a_finished_job_costs_its_next_controller_one_request_when_its_time_to_live_is_over(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, tmp_path: Path
) -> None:
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.submit(tfjob(master(template=lasting(0.1))))
        jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
    # Only now, since the first controller would delete it if it took longer than that to stop.
    jobs.change({"spec": {"ttlSecondsAfterFinished": 3}})
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace):
        eventually(lambda: jobs.status() == {}, PATIENCE_SECONDS, PERIOD_SECONDS)
    assert requests(proxy.seen) == [f"DELETE {jobs.path}/example-job"]


def test_a_finished_job_costs_nothing_whatever_happens_to_its_children(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, api: Api, tmp_path: Path
) -> None:
    """Nothing is made anew: a finished job is left alone."""
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace) as manager:
        jobs.submit(tfjob(master(template=lasting(0.1)), workers(1)))
        jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
        await_rest(manager, tfjobs=[jobs.get()])
        before, synced = len(requests(proxy.seen)), syncs(manager)
        for name in jobs.children("services"):
            api.delete(f"/api/v1/namespaces/{jobs.namespace}/services/{name}")
        for name in jobs.children("jobs"):
            api.delete(f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs/{name}", propagationPolicy="Background")
        eventually(lambda: not jobs.children("pods"), PATIENCE_SECONDS, 0.2)
        caches = manager.caches
        eventually(lambda: not any(each.store.list() for each in (caches.services, caches.jobs, caches.pods)))
        await_rest(manager)
        assert syncs(manager) > synced
        assert requests(proxy.seen)[before:] == []
        assert jobs.children("jobs") == jobs.children("services") == {}


def test_events_are_written_after_the_status_they_speak_of(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, tmp_path: Path
) -> None:
    """A status that cannot be written is not told of; what was created is."""
    proxy.next(Reply(500, "InternalError"), method="PATCH", path="/status", times=1000)
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace):
        jobs.submit(tfjob(master()))
        eventually(lambda: told(jobs), PATIENCE_SECONDS, PERIOD_SECONDS)
        eventually(lambda: any(each.fault for each in proxy.seen), PATIENCE_SECONDS, PERIOD_SECONDS)
        assert set(told(jobs)) == {"SuccessfulCreate"}
        proxy.clear()
        jobs.await_phase("Running", timeout=PATIENCE_SECONDS)
        eventually(lambda: "Running" in told(jobs), PATIENCE_SECONDS, PERIOD_SECONDS)
    assert told(jobs).count("Running") == 1


def told(jobs: Jobs) -> list[str]:
    return [each["reason"] for each in jobs.events() if each["regarding"]["kind"] == "TFJob"]
