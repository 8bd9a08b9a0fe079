"""A TrainJob from its creation to its end on a real API server, with a stand-in for kubelets."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.playground import Trial, condition
from helpers.poll import eventually
from helpers.trainjobs import await_ready, nodes, step_of

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


def test_a_deleted_job_takes_all_its_children_with_it(train: Trial) -> None:
    train.train(2, **TORCHRUN)
    await_ready(train)
    runtime_id = train.runtime_id
    train.delete()

    def left() -> list[str]:
        found = [train.jobs.children(plural) for plural in ("jobs", "services", "pods")]
        return [name for some in found for name in some if runtime_id in name]

    eventually(lambda: not left())
