"""A TrainJob from its creation to its end, and its suspension, on a real API server, with a stand-in for kubelets."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controller import Jobs
from helpers.manifests import master, tfjob
from helpers.playground import Trial, condition
from helpers.poll import PATIENCE_SECONDS, eventually
from helpers.trainjobs import await_ready, ends, nodes, step_of

pytestmark = pytest.mark.cluster

TORCHRUN: dict[str, Any] = {"command": ("torchrun", "train.py")}


def test_a_job_of_two_nodes_goes_from_creating_to_running_to_complete(train: Trial) -> None:
    train.train(2)
    assert train.await_status(lambda status: status.get("phase")).get("phase") in ("Creating", "Running")
    running = train.await_phase("Running")
    assert running["state"] == "RUNNING"
    assert running["startTime"]
    assert condition(running, "Created")["reason"] == "JobsCreationSucceeded"
    for node in nodes(2):
        train.end(node)
    done = train.await_end()
    assert (done["phase"], done["state"], done.get("restarts", 0)) == ("Done", "SUCCESS", 0)
    complete = condition(done, "Complete")
    assert (complete["status"], complete["reason"]) == ("True", "AllJobsCompleted")
    assert complete["message"] == "all 2 nodes succeeded"
    assert condition(done, "Running")["status"] == "False"
    assert step_of(done) == {"name": "node", "replicas": 2, "ready": 0, "active": 0, "succeeded": 2, "failed": 0,
                             "suspended": 0}  # fmt: skip
    assert (done["nodes"], done["runtime"]) == ("2/2", "plain")
    assert done["completionTime"] >= done["startTime"]
    train.await_event("Done", "all 2 nodes succeeded")
    train.await_event("Done")
    assert {each["reason"] for each in train.events()} == {"SuccessfulCreate", "Running", "Done"}


def test_children_have_the_jobs_name_and_role_and_its_labels(train: Trial) -> None:
    job = train.train(2, labels={"team": "vision", "job_type": "mine"}, annotations={"note": "any text"}, **TORCHRUN)
    await_ready(train)
    meta = job["metadata"]
    names = {"jobs": f"{train.name}-node-{train.runtime_id}", "services": f"{train.name}-{train.runtime_id}"}
    for plural, name in names.items():
        ((found, child),) = train.children(plural).items()
        assert found == name
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("TrainJob", train.name, meta["uid"])
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)
        assert child["metadata"]["annotations"]["note"] == "any text"
        assert child["metadata"]["labels"].items() >= labels_of(train).items()
    pods = [*train.children("pods").values()]
    hosts = {f"{names['jobs']}-{index}" for index in (0, 1)}
    assert {pod["spec"]["hostname"] for pod in pods} == hosts
    for pod in pods:
        assert pod["spec"]["subdomain"] == names["services"]
        assert pod["metadata"]["labels"].items() >= labels_of(train).items()
        assert pod["metadata"]["annotations"]["note"] == "any text"
    (service,) = train.children("services").values()
    assert service["spec"]["clusterIP"] == "None"
    assert [port["port"] for port in service["spec"]["ports"]] == [29500]
    assert service["spec"]["selector"].items() <= labels_of(train).items()


def labels_of(trial: Trial) -> dict[str, str]:
    """The user's own, but for those that belong to the controller."""
    return {
        "kubeflow.org": "",
        "train_job_name": trial.name,
        "runtime_id": trial.runtime_id,
        "job_type": "node",
    }


def is_suspended(status: dict[str, object]) -> bool:
    return condition(status, "Suspended")["status"] == "True"


def test_a_suspended_job_has_no_pods_and_a_resumed_one_has_all_and_no_restart_is_counted(train: Trial) -> None:
    train.train(2, command=("torchrun", "train.py"))
    await_ready(train)
    before = train.status()["startTime"]
    old = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    train.change(suspend=True)
    status = train.await_status(is_suspended)
    assert (status.get("state", ""), "startTime" in status) == ("", False)
    eventually(lambda: not train.children("pods"))
    status = train.await_status(lambda status: step_of(status).get("suspended") == 2)
    assert (step_of(status)["active"], status["nodes"]) == (0, "0/2")
    assert len(train.children("jobs")) == len(train.children("services")) == 1
    train.change(suspend=False)
    status = await_ready(train)
    suspended = condition(status, "Suspended")
    assert (suspended["status"], suspended["reason"]) == ("False", "Resumed")
    assert (status.get("restarts", 0), status["startTime"] >= before) == (0, True)
    new = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    assert (new.keys(), new != old) == (old.keys(), True)
    assert train.notes("Restarted") == []
    for reason in ("Suspended", "Resumed"):
        train.await_event(reason)
        assert len(train.notes(reason)) == 1


def test_a_permanent_error_of_one_node_fails_the_job_at_once_and_says_what_it_said(train: Trial) -> None:
    train.plays("node-1", ends(1, "ValueError: no such column 'labels'"))
    train.train(3)
    status = train.await_end()
    assert (status["phase"], status["state"], status.get("restarts", 0)) == ("Failed", "FAILED", 0)
    failed = condition(status, "Failed")
    words = "node-1 failed: exit code 1: ValueError: no such column 'labels'"
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "ReplicaFailed", words)
    assert status["reason"] == words
    assert step_of(status)["failed"] == 1
    train.await_event("Failed", words)
    # The others are stopped; the failed one's pod stays, with its log.
    eventually(lambda: not train.pods("node-0") and not train.pods("node-2"))
    assert len(train.pods("node-1")) == 1


def test_a_job_and_a_tfjob_of_the_same_name_do_not_disturb_each_other(train: Trial) -> None:
    tfjobs = Jobs(train.jobs.api, train.namespace)
    tfjobs.submit(tfjob(master(), name=train.name))
    train.train(2, command=("torchrun", "train.py"))
    try:
        await_ready(train)
        tfjobs.await_phase("Running", train.name, PATIENCE_SECONDS)
        assert len(train.children("jobs")) == 1
        tfjobs.delete(train.name)
        gone = f"{train.name}-master-"
        eventually(lambda: not [each for each in tfjobs.children("pods") if each.startswith(gone)])
        assert len(train.children("pods")) == 2
        assert train.status().get("restarts", 0) == 0
        train.end("node-0")
        train.end("node-1")
        assert train.await_end()["state"] == "SUCCESS"
    finally:
        if tfjobs.status(train.name):
            tfjobs.delete(train.name)
