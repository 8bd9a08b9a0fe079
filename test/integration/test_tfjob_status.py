"""The status of a TFJob on a real API server: fields, conditions, and the reason while it waits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import Trial, condition, ends

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def truths(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_a_running_job_has_these_fields_under_these_names(trial: Trial) -> None:
    trial.submit(master(), workers(1), parameter_servers(2))
    status = trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "1/1", "ps": "2/2"})
    assert TIME.fullmatch(status.pop("startTime"))
    conditions = status.pop("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Created", "True", "JobCreated"),
        ("Running", "True", "ChiefRunning"),
    ]
    for each in conditions:
        assert TIME.fullmatch(each["lastTransitionTime"])
        assert each["observedGeneration"] == 2
        assert each["message"]
    assert status == {
        "phase": "Running",
        "state": "Running",
        "summary": "Running",
        "controlPaused": False,
        "observedGeneration": 2,
        "replicaStatuses": [
            {"tf_replica_type": "MASTER", "state": "Running", "ReplicasStates": {"Running": 1}},
            {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1}},
            {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 2}},
        ],
        "ready": {"master": "1/1", "worker": "1/1", "ps": "2/2"},
        "scaling": {"workers": 1},
        "workerReplicas": 1,
        "workerSelector": f"job_type=WORKER,kubeflow.org=,runtime_id={trial.runtime_id},tf_job_name={trial.name}",
    }


def test_a_finished_job_has_these_fields_under_these_names(trial: Trial) -> None:
    trial.plays("worker-0", ends(143), ends(0))
    trial.submit(master(), workers(2))
    trial.await_status(
        lambda status: status.get("succeededIndexes") == ["worker-0"] and status["ready"]["worker"] == "2/2"
    )
    trial.end("master-0")
    status = trial.await_phase("Done")
    assert (status["state"], status["reason"], status["restarts"]) == ("Succeeded", "master-0 succeeded", 1)
    assert status["succeededIndexes"] == ["master-0", "worker-0"]
    assert status["startTime"] <= status["completionTime"]
    # A restart that is over before the controller looks again is counted, but never was a state.
    assert truths(status).get("Restarting", "False") == "False"
    shown = {name: value for name, value in truths(status).items() if name != "Restarting"}
    assert shown == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert condition(status, "Succeeded")["reason"] == "ChiefSucceeded"
    by_type = {each["tf_replica_type"]: (each["state"], each["ReplicasStates"]) for each in status["replicaStatuses"]}
    assert by_type == {
        "MASTER": ("Succeeded", {"Succeeded": 1}),
        "WORKER": ("Running", {"Succeeded": 1, "Running": 1}),
    }


def test_a_pod_that_cannot_be_scheduled_shows_the_schedulers_message(trial: Trial) -> None:
    nowhere = pod_template(container(), nodeSelector={"kubernetes.io/hostname": "nowhere"})
    trial.submit(master(template=nowhere))
    status = trial.await_reason("master-0: Unschedulable: 0/", "nodes are available")
    assert (status["phase"], status["state"]) == ("Creating", "Running")


def test_the_children_that_a_sync_creates_have_one_event(trial: Trial) -> None:
    trial.submit(master(), workers(1), parameter_servers(1))
    trial.await_phase("Running")
    names = [trial.child(replica) for replica in ("master-0", "worker-0", "ps-0")]
    told = trial.await_event("SuccessfulCreate", "3 Jobs", "3 Services", "1 ConfigMap", *names)
    assert f"cm-ps-{trial.runtime_id}" in told["note"]
    assert len(trial.notes("SuccessfulCreate")) == 1
    assert (told["type"], told["action"], told["reportingController"]) == ("Normal", "Create", "tfjob-controller")
    regarding = told["regarding"]
    assert (regarding["kind"], regarding["apiVersion"], regarding["name"]) == (
        "TFJob",
        "kubeflow.org/v1alpha1",
        trial.name,
    )
