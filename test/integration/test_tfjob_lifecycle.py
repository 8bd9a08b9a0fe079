"""A TFJob from its creation to its end on a real API server, with stand-ins for kubelets."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.atrest import await_rest
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import master, parameter_servers, tfjob, workers
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster


@pytest.fixture
def controller(control_plane: Cluster, kubectl: Kubectl, namespace: str) -> Iterator[Manager]:
    with running_controller(control_plane.kubeconfig, namespace) as manager:
        yield manager


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


def example_job(**spec: Any) -> dict[str, Any]:
    """The tutorial's: 1 MASTER, 1 WORKER, 2 PS with the default server. All run until the test ends them."""
    return tfjob(master(), workers(1), parameter_servers(2), **spec)


def test_the_tutorials_job_goes_through_its_phases_and_ends_done(
    control_plane: Cluster, controller: Manager, jobs: Jobs
) -> None:
    jobs.submit(example_job())
    jobs.await_phase("Creating")
    with FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=jobs.namespace):
        assert jobs.await_phase("Running")["state"] == "Running"
        for role in ("worker", "master"):
            jobs.end_replica(role)
        ends_done(jobs)


def ends_done(jobs: Jobs) -> None:
    runtime_id = jobs.get()["spec"]["RuntimeId"]
    names = {f"example-job-{replica}" for replica in (f"master-{runtime_id}-0", f"worker-{runtime_id}-0")} | {
        f"example-job-ps-{runtime_id}-{index}" for index in (0, 1)
    }
    assert set(jobs.children("jobs")) == set(jobs.children("services")) == names
    assert set(jobs.children("configmaps")) == {f"cm-ps-{runtime_id}"}
    done = jobs.await_phase("Done")
    assert done["state"] == "Succeeded"
    assert {each["type"] for each in done["conditions"] if each["status"] == "True"} >= {"Created", "Succeeded"}
    # Jobs and Services stay; the pods of the parameter servers, which would run for ever, are gone.
    assert set(jobs.children("jobs")) == set(jobs.children("services")) == names
    pods = eventually(lambda: (found := jobs.children("pods")) and not any("-ps-" in name for name in found) and found)
    assert any("-master-" in name for name in pods), "the log of what ended by itself can be read"
    assert {pod["status"]["phase"] for pod in pods.values()} == {"Succeeded"}


def test_every_replica_knows_its_place_in_the_cluster(controller: Manager, kubelet: FakeKubelet, jobs: Jobs) -> None:
    jobs.submit(example_job())
    jobs.await_phase("Running")
    runtime_id = jobs.get()["spec"]["RuntimeId"]
    pods = eventually(lambda: len(found := jobs.children("pods")) == 4 and found)
    places = set()
    for pod in pods.values():
        (trained,) = [each for each in pod["spec"]["containers"] if each["name"] == "tensorflow"]
        (value,) = [each["value"] for each in trained["env"] if each["name"] == "TF_CONFIG"]
        config = json.loads(value)
        assert config["cluster"] == {
            "master": [f"example-job-master-{runtime_id}-0:2222"],
            "ps": [f"example-job-ps-{runtime_id}-{index}:2222" for index in (0, 1)],
            "worker": [f"example-job-worker-{runtime_id}-0:2222"],
        }
        places.add((config["task"]["type"], config["task"]["index"]))
    assert places == {("master", 0), ("worker", 0), ("ps", 0), ("ps", 1)}


def test_health_and_metrics_tell_of_the_job(controller: Manager, kubelet: FakeKubelet, jobs: Jobs) -> None:
    jobs.submit(tfjob(master()))
    jobs.await_phase("Running")
    jobs.end_replica("master")
    jobs.await_phase("Done")
    await_rest(controller, tfjobs=[jobs.get()])

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{controller.servers[0].port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    assert page("/healthz") == page("/readyz") == "ok\n"
    shown = page("/metrics")
    assert f'tfjob_jobs{{namespace="{jobs.namespace}",phase="Done",state="Succeeded"}} 1.0' in shown
    assert 'tfjob_finished_total{state="Succeeded"} 1.0' in shown
    assert "tfjob_time_to_running_seconds_count 1.0" in shown
    assert json.loads(page("/debug/queue"))["processing"] == 0
    assert "tfjob-worker-0" in page("/debug/threads")
