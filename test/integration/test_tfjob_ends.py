"""Ends of replicas on a real API server and their effects on the job: exit codes, restarts, disruptions, the chief."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import pod_path
from helpers.kubernetesversion import running_version
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import FOREVER, Trial, ends
from helpers.poll import eventually
from localcluster.podstatus import Outcome
from tfjob_controller.programs.manager import RESTART_RULES_SINCE

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")
ON_FAILURE = pod_template(container(), restartPolicy="OnFailure")


def state_of(status: Object, replica_type: str) -> tuple[str, Object]:
    (found,) = [each for each in status["replicaStatuses"] if each["tf_replica_type"] == replica_type]
    return found["state"], found["ReplicasStates"]


@pytest.mark.parametrize(
    ("template", "end", "phase", "state", "reason"),
    [
        pytest.param(NEVER, ends(1, "no data"), "Failed", "Failed", "master-0 failed: exit code 1: no data", id="1"),
        pytest.param(ON_FAILURE, ends(127), "Failed", "Failed", "master-0 failed: exit code 127", id="127"),
    ],
)
def test_these_ends_of_the_chief_are_the_jobs(
    trial: Trial, template: Object, end: Outcome, phase: str, state: str, reason: str
) -> None:
    trial.plays("master-0", end)
    trial.submit(master(template=template), workers(1))
    status = trial.await_end()
    assert (status["phase"], status["state"], status["reason"]) == (phase, state, reason)
    may_restart = template is ON_FAILURE and restarts_until_stopped(end)
    assert status.get("restarts", 0) <= int(may_restart)
    assert trial.starts("master-0") <= 1 + may_restart


def restarts_until_stopped(end: Outcome) -> bool:
    """Reports whether the kubelet restarts a container with OnFailure until the controller has stopped its Job.

    Without restart rules the kubelet does not tell codes apart.
    """
    return end.exit_code != 0 and running_version() < RESTART_RULES_SINCE


def test_a_chief_that_ends_by_a_signal_is_started_again_in_its_pod(trial: Trial) -> None:
    trial.plays("master-0", ends(128), ends(143), FOREVER)
    trial.submit(master(template=ON_FAILURE), workers(1))
    status = trial.await_status(lambda status: status.get("restarts") == 2)
    assert (status["phase"], status["state"]) == ("Running", "Running")
    (pod,) = trial.pods("master-0")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 2


def test_with_restart_policy_never_the_chief_gets_a_new_pod(trial: Trial) -> None:
    """In a new Job, since each starts one pod."""
    trial.plays("master-0", ends(143), ends(0))
    trial.submit(master(template=NEVER))
    status = trial.await_phase("Done")
    assert (status["state"], status["restarts"], trial.starts("master-0")) == ("Succeeded", 1, 2)
    assert status["restartCounts"] == {"master-0": 1}
    assert trial.child_job("master-0")["status"].get("failed", 0) == 0


@pytest.mark.parametrize("victims", ["pods", "jobs"])
def test_a_worker_that_succeeded_is_never_run_again_whatever_is_deleted(trial: Trial, victims: str) -> None:
    trial.plays("worker-0", ends(0))
    trial.submit(master(), workers(2))
    trial.await_status(lambda status: status.get("succeededIndexes") == ["worker-0"])
    name = trial.child("worker-0")
    paths = {
        "pods": [pod_path(trial.namespace, each["metadata"]["name"]) for each in trial.pods("worker-0")],
        "jobs": [trial.child_path("jobs", name)],
    }
    for path in paths[victims]:
        trial.jobs.api.delete(path, propagationPolicy="Background")
    # Whatever is to happen has happened once another worker, asked for after it, runs.
    trial.change(workerReplicas=3)
    trial.await_running("worker-2")
    assert trial.starts("worker-0") == 1
    status = trial.status()
    assert status["succeededIndexes"] == ["worker-0"]
    assert state_of(status, "WORKER")[1]["Succeeded"] == 1


@pytest.mark.parametrize("plural", ["jobs", "configmaps"])
def test_a_child_that_is_deleted_comes_back(trial: Trial, plural: str) -> None:
    trial.submit(master(), parameter_servers(1))
    trial.await_phase("Running")
    name = f"cm-ps-{trial.runtime_id}" if plural == "configmaps" else trial.child("ps-0")
    path = trial.child_path(plural, name)
    uid = trial.jobs.api.get(path)["metadata"]["uid"]
    trial.jobs.api.delete(path, propagationPolicy="Background")

    def is_back() -> bool:
        found = trial.jobs.api.find(path)
        return found is not None and found["metadata"]["uid"] != uid

    eventually(is_back)
    trial.await_running("ps-0")
    assert trial.status()["state"] == "Running"


def test_a_child_job_that_somebody_suspends_is_replaced(trial: Trial) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    before = trial.await_running("worker-0")["metadata"]["name"]
    path = trial.child_path("jobs", trial.child("worker-0"))
    uid = trial.jobs.api.patch(path, {"spec": {"suspend": True}})["metadata"]["uid"]
    trial.await_running("worker-0", but=before)
    job = trial.child_job("worker-0")
    assert (job["metadata"]["uid"] != uid, job["spec"]["suspend"]) == (True, False)
    assert trial.status()["state"] == "Running"


def evict(trial: Trial, pod: Object) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    trial.jobs.api.create(f"{pod_path(trial.namespace, pod['metadata']['name'])}/eviction", body)


def test_the_evicted_pod_of_a_chief_is_replaced_and_the_job_goes_on(trial: Trial) -> None:
    """The eviction API sets DisruptionTarget, as preemption and node loss do."""
    trial.submit(master(template=ON_FAILURE), workers(1))
    trial.await_phase("Running")
    pod = trial.await_running("master-0")
    evict(trial, pod)
    trial.await_running("master-0", but=pod["metadata"]["name"])
    status = trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "1/1"})
    assert (status["phase"], status["state"]) == ("Running", "Running")
