"""Requests of a TrainJob to an API server: their number per job, and none for a job that needs no change."""

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
from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS
from helpers.poll import eventually
from helpers.sentrequests import requests
from helpers.trainjobs import step_of
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.faultproxy import FaultProxy
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

NAME = "example-train"
# Without a log that nobody has here.
QUIET: dict[str, Any] = {"command": ("torchrun",), "metrics": {"names": []}}


@pytest.fixture
def proxy(control_plane: Cluster, kubectl: Kubectl, kubelet: FakeKubelet) -> Iterator[FaultProxy]:
    with FaultProxy(control_plane.own.server) as proxy:
        yield proxy


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace, TRAINJOBS)


def syncs(manager: Manager) -> float:
    labels = {"controller": "trainjob", "result": "success"}
    return manager.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0


def test_a_job_costs_two_creates_and_a_few_statuses_however_many_nodes_it_has(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, tmp_path: Path
) -> None:
    """The cheapest of some: while the machine is busy, nodes come up one by one, and that is written in between."""
    nodes = 8
    names = (f"job-{number}" for number in itertools.count())
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace):

        def cost() -> int:
            before, name = len(requests(proxy.seen)), next(names)
            jobs.submit(trainjob(name, nodes, annotations={RUN_SECONDS: "2"}, **QUIET))
            jobs.await_phase("Done", name, PATIENCE_SECONDS)
            sent = requests(proxy.seen)[before:]
            assert sum(path.startswith("POST") for path in sent) == 2, "\n".join(sent)
            assert {path.split()[0] for path in sent} == {"POST", "PATCH"}, sent
            return len(sent)

        eventually(lambda: cost() <= 6, 200, 0)


def test_a_job_that_has_all_it_needs_costs_nothing_whatever_happens_around_it(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, api: Api, tmp_path: Path
) -> None:
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace) as manager:
        jobs.submit(trainjob(NAME, 3, **QUIET))
        eventually(lambda: step_of(jobs.status(NAME)).get("ready") == 3, PATIENCE_SECONDS, PERIOD_SECONDS)
        await_rest(manager, trainjobs=[jobs.get(NAME)])
        before, synced = len(requests(proxy.seen)), syncs(manager)
        touch = {"metadata": {"labels": {"touched": "yes"}}}
        pods, children = f"/api/v1/namespaces/{jobs.namespace}/pods", f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs"
        await_rest(
            manager,
            trainjobs=[jobs.change(touch, NAME)],
            pods=[api.patch(f"{pods}/{name}", touch) for name in jobs.children("pods")],
            jobs=[
                api.patch(f"{children}/{name}", {"metadata": {"annotations": {"touched": "yes"}}})
                for name in jobs.children("jobs")
            ],
        )
        assert syncs(manager) > synced
        assert requests(proxy.seen)[before:] == []


def test_the_next_controller_finds_nothing_to_do(
    control_plane: Cluster, proxy: FaultProxy, jobs: Jobs, tmp_path: Path
) -> None:
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.submit(trainjob("running", 2, **QUIET))
        jobs.submit(trainjob("done", 1, annotations={RUN_SECONDS: "0.1"}, **QUIET))
        jobs.submit(trainjob("others", 1, managedBy="example.com/other", **QUIET))
        eventually(lambda: step_of(jobs.status("running")).get("ready") == 2, PATIENCE_SECONDS, PERIOD_SECONDS)
        jobs.await_phase("Done", "done", PATIENCE_SECONDS)
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), jobs.namespace) as manager:
        eventually(lambda: syncs(manager) >= 2, PATIENCE_SECONDS, PERIOD_SECONDS)
        await_rest(manager, trainjobs=jobs.all(), pods=list(jobs.children("pods").values()))
        assert requests(proxy.seen) == []
    assert jobs.status("others") == {}
