"""A child Job that replaces a deleted one waits for the pods of the deleted one, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import set_pod_running
from helpers.manifests import master, workers
from helpers.playground import Trial, alone
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

# On a node that nobody looks after, so it goes when the test says so, and is not given up for lost before.
SLOW = alone(terminationGracePeriodSeconds=3600)


def running_pod(trial: Trial, replica: str) -> str:
    name = str(trial.await_pod(replica)["metadata"]["name"])
    set_pod_running(trial.jobs.api, trial.namespace, name)
    return name


@pytest.mark.parametrize(
    ("propagation", "words"),
    [
        pytest.param("Background", "of its deleted Job to end", id="the garbage collector takes its pod away"),
        pytest.param("Orphan", "which no Job controls any more, to end; or delete it", id="its pod is left behind"),
    ],
)
def test_a_child_job_is_recreated_once_the_pod_of_the_deleted_one_has_gone(
    trial: Trial, propagation: str, words: str
) -> None:
    trial.submit(master(), workers(1, template=SLOW))
    pod = running_pod(trial, "worker-0")
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "1/1"})
    name = trial.child("worker-0")
    job, service = trial.child_path("jobs", name), trial.child_path("services", name)
    was = {path: trial.jobs.api.get(path)["metadata"]["uid"] for path in (job, service)}

    trial.jobs.api.delete(job, propagationPolicy=propagation)
    eventually(lambda: trial.jobs.api.find(job) is None)
    trial.await_reason(f"worker-0: waits for pod {pod}", words)
    trial.jobs.api.delete(service)
    eventually(lambda: is_new(trial, service, was[service]))
    assert trial.jobs.api.find(job) is None
    assert [each["metadata"]["name"] for each in trial.pods("worker-0")] == [pod]

    trial.jobs.api.delete(trial.child_path("pods", pod), gracePeriodSeconds=0)
    eventually(lambda: is_new(trial, job, was[job]))
    running_pod(trial, "worker-0")
    status = trial.await_status(lambda status: not status.get("reason"))
    assert (status["phase"], status.get("restarts", 0)) == ("Running", 0)


def is_new(trial: Trial, path: str, uid: str) -> bool:
    found = trial.jobs.api.find(path)
    return found is not None and found["metadata"]["uid"] != uid
