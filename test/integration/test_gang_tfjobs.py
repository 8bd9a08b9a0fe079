"""TFJobs as gangs, with everything real but the kubelet: controller, gang scheduler, kube-scheduler, Job controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangowner import SMALL
from helpers.gangscheduler import running_gang_scheduler, running_schedulers
from helpers.manifests import gang_job
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet

NODES = ("node-a", "node-b")

Object = dict[str, Any]


@pytest.fixture
def jobs(gang_scheduling: Cluster) -> Iterator[Jobs]:
    with (
        FakeKubelet(
            Api.from_kubeconfig(gang_scheduling.kubeconfig),
            namespace="gangs",
            nodes=("node-a", "node-b"),
            resources=SMALL,
        ),
        running_controller(gang_scheduling.kubeconfig, "gangs"),
    ):
        jobs = Jobs(gang_scheduling.api, "gangs")
        yield jobs
        for job in jobs.all():
            jobs.delete(job["metadata"]["name"])


def condition(jobs: Jobs, name: str, type_: str) -> Object:
    found = [each for each in jobs.status(name).get("conditions", []) if each["type"] == type_]
    return found[0] if found else {}


def test_of_two_jobs_that_together_do_not_fit_one_runs_and_then_the_other(jobs: Jobs) -> None:
    for name in ("first", "second"):
        jobs.submit(gang_job(name, 5))
    (running,) = eventually(lambda: [name for name in ("first", "second") if jobs.phase(name) == "Running"])
    (waiting,) = {"first", "second"} - {running}
    eventually(lambda: condition(jobs, waiting, "Scheduled").get("status") == "False")
    assert "cpu" in condition(jobs, waiting, "Scheduled")["message"]
    assert {pod["metadata"]["labels"]["tf_job_name"] for pod in jobs.children("pods").values()} == {running}
    for name in (running, waiting):
        jobs.end_replica("master", job=name)
        assert jobs.await_phase("Done", name, 40)["state"] == "Succeeded"


def test_in_mode_affinity_the_default_scheduler_binds_each_pod_where_its_gang_was_placed(gang_cluster: Cluster) -> None:
    with (
        running_gang_scheduler(gang_cluster.kubeconfig, mode="affinity") as scheduler,
        FakeKubelet(Api.from_kubeconfig(gang_cluster.kubeconfig), namespace="gangs", nodes=NODES, resources=SMALL),
        running_controller(gang_cluster.kubeconfig, "gangs", gang_mode="affinity"),
    ):
        assert scheduler.extender is None
        jobs = Jobs(gang_cluster.api, "gangs")
        for name in ("first", "second"):
            jobs.submit(gang_job(name, 4))
        for _ in range(2):
            (name,) = eventually(lambda: [each for each in ("first", "second") if jobs.phase(each) == "Running"])
            jobs.end_replica("master", job=name)
            assert jobs.await_phase("Done", name, 40)["state"] == "Succeeded"
        assert {pod["spec"]["schedulerName"] for pod in jobs.children("pods").values()} == {"default-scheduler"}


def test_a_job_gives_workers_up_for_one_that_waits_and_gets_them_back(gang_cluster: Cluster) -> None:
    """All programs as they are: eight CPUs, seven of which are taken."""
    quick = {"scale_down_after": 1.0, "scale_up_after": 1.0}
    with (
        running_schedulers(gang_cluster, **quick),
        FakeKubelet(Api.from_kubeconfig(gang_cluster.kubeconfig), namespace="gangs", nodes=NODES, resources=SMALL),
        running_controller(gang_cluster.kubeconfig, "gangs", autoscaling="on"),
    ):
        jobs = Jobs(gang_cluster.api, "gangs")
        elastic = gang_job("elastic", 6)
        elastic["spec"]["autoscaling"] = {"minWorkers": 2, "maxWorkers": 6}
        jobs.submit(elastic)
        eventually(lambda: workers_on_nodes(jobs, "elastic") == 6, 120)
        jobs.submit(gang_job("second", 3))
        jobs.await_phase("Running", "second", 120)
        assert jobs.get("elastic")["spec"]["workerReplicas"] == 3
        eventually(lambda: workers_on_nodes(jobs, "elastic") == 3, 120)
        jobs.delete("second")
        eventually(lambda: workers_on_nodes(jobs, "elastic") == 6, 120)
        eventually(lambda: condition(jobs, "elastic", "Resizing").get("status") == "False", 120)
        told = [each["note"] for each in jobs.events() if each["reason"] == "Resized"]
        assert any(note.startswith("shrunk 6 → 3 workers: capacity for gangs/second") for note in told)
        assert jobs.status("elastic").get("restarts", 0) == 0
        jobs.delete("elastic")


def workers_on_nodes(jobs: Jobs, name: str) -> int:
    """How many of the job's workers have a node."""
    labels = [(pod["metadata"]["labels"], pod["spec"].get("nodeName")) for pod in jobs.children("pods").values()]
    return sum(bool(node) and each["tf_job_name"] == name and each["job_type"] == "WORKER" for each, node in labels)
