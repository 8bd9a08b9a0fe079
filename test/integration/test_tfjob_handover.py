"""A new controller handles all changes that happened while none ran, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import Cluster, pod_path
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import master, parameter_servers, tfjob, workers
from helpers.playground import PATIENCE_SECONDS
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


@pytest.fixture
def jobs(kubectl: Kubectl, kubelet: FakeKubelet, api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


def child_ended(jobs: Jobs, role: str) -> bool:
    """Has that role's child Job a final word?"""
    (job,) = [each for name, each in jobs.children("jobs").items() if f"-{role}-" in name]
    return any(each["status"] == "True" for each in job.get("status", {}).get("conditions", ()))


def await_running(jobs: Jobs) -> Object:
    return jobs.await_phase("Running", timeout=PATIENCE_SECONDS)


def test_a_job_that_ended_meanwhile_is_cleaned_up_and_done(control_plane: Cluster, jobs: Jobs) -> None:
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.submit(tfjob(master(), workers(1), parameter_servers(1)))
        await_running(jobs)
        before = jobs.get()["spec"]["RuntimeId"]
    jobs.end_replica("master")
    eventually(lambda: child_ended(jobs, "master"))
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        status = jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
    assert (status["state"], jobs.get()["spec"]["RuntimeId"]) == ("Succeeded", before)
    assert len(jobs.children("jobs")) == len(jobs.children("services")) == 3


def test_a_worker_that_succeeded_meanwhile_and_lost_its_pod_is_not_run_again(
    control_plane: Cluster, jobs: Jobs, api: Api
) -> None:
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.submit(tfjob(master(), workers(1)))
        await_running(jobs)
    jobs.end_replica("worker")
    eventually(lambda: child_ended(jobs, "worker"))
    (pod,) = [name for name in jobs.children("pods") if "-worker-" in name]
    api.delete(pod_path(jobs.namespace, pod), gracePeriodSeconds=0)
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.end_replica("master")
        status = jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
    assert status["succeededIndexes"] == ["master-0", "worker-0"]
    assert not [name for name in jobs.children("pods") if "-worker-" in name]


def test_events_of_a_phase_are_not_repeated(control_plane: Cluster, jobs: Jobs) -> None:
    for _ in range(3):
        with running_controller(control_plane.kubeconfig, jobs.namespace):
            if not jobs.status():
                jobs.submit(tfjob(master()))
            await_running(jobs)
            eventually(lambda: told(jobs)["Running"] == 1)
    counts = told(jobs)
    assert counts == {"Running": 1, "SuccessfulCreate": 1}


def told(jobs: Jobs) -> dict[str, int]:
    counts = {"Running": 0, "SuccessfulCreate": 0}
    for event in jobs.events():
        if event["regarding"]["kind"] == "TFJob":
            times = (event.get("series") or {}).get("count", 1)
            counts[event["reason"]] = counts.get(event["reason"], 0) + times
    return counts
