"""A TrainJob from its creation to its end on a real API server, with a stand-in for kubelets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.playground import Trial, condition
from helpers.poll import eventually
from helpers.trainjobs import await_ready, ends, env_of, nodes, step_of
from helpers.trainmanifests import trainjob
from tfjob_controller.trainer.naming import child_name

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


def test_the_state_is_empty_before_the_job_runs(train: Trial) -> None:
    train.train(1, podSpecOverrides=[{"targetJobs": [{"name": "node"}], "nodeSelector": {"none": "such"}}])
    status = train.await_status(lambda status: "match Pod's node" in status.get("reason", ""))
    assert status["phase"] == "Creating"
    assert status.get("state", "") == ""


def test_a_job_succeeds_only_when_all_of_its_nodes_have(train: Trial) -> None:
    train.plays("node-0", ends(0))
    train.train(3)
    status = train.await_status(lambda status: step_of(status).get("succeeded") == 1 and step_of(status)["ready"] == 2)
    assert status["phase"] == "Running"
    assert status["nodes"] == "3/3"
    train.end("node-2")
    train.await_status(lambda status: step_of(status).get("succeeded") == 2)
    train.end("node-1")
    assert train.await_end()["state"] == "SUCCESS"


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


def test_a_framework_without_a_port_has_no_services(train: Trial) -> None:
    train.train(2, framework="plain")
    await_ready(train)
    assert train.children("services") == {}


def test_torchrun_finds_its_nodes_in_the_environment_of_each_pod(train: Trial) -> None:
    mine = {"env": [{"name": "MINE", "value": "yes"}], "resourcesPerNode": {"requests": {"cpu": "1500m"}}}
    train.train(2, trainer={"command": ["torchrun", "train.py"], **mine})
    await_ready(train)
    first = f"{child_name(train.name, 'node', train.runtime_id, 0)}.{train.name}-{train.runtime_id}"
    rank = "$(JOB_COMPLETION_INDEX)"
    for index in (0, 1):
        (pod,) = train.pods(f"node-{index}")
        # Kubernetes replaces the reference in the others by this variable, which stands first.
        assert pod["spec"]["containers"][0]["env"][0] == {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
                }
            },
        }
        assert env_of(pod) == {
            "JOB_COMPLETION_INDEX": "",
            "MINE": "yes",
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "2",
            "PET_NODE_RANK": rank,
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": "29500",
            "MASTER_ADDR": first,
            "MASTER_PORT": "29500",
            "WORLD_SIZE": "2",
            "RANK": rank,
        }
        assert pod["spec"]["containers"][0]["command"] == ["torchrun", "train.py"]
    assert train.status()["runtime"] == "torch-distributed"


def test_a_long_name_with_dots_is_cut_in_the_names_of_children(train: Trial) -> None:
    name = "1." + "a" * 60 + ".b"
    train.jobs.submit(trainjob(name, 1, framework="torch"))
    try:
        train.jobs.await_phase("Running", name)
        found = [each for each in train.jobs.children("services") if each.startswith("j1-aaa")]
        assert len(found) == 1
        assert re.fullmatch(r"j1-a{37}-[a-z][a-z0-9]{3}", found[0]), found
    finally:
        train.jobs.delete(name)


def test_columns_show_state_nodes_and_runtime(train: Trial) -> None:
    train.train(2, **TORCHRUN)
    await_ready(train)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = train.jobs.api.request("GET", f"{train.jobs.path}/{train.name}", accept=accept)
    columns = [each["name"] for each in table["columnDefinitions"]]
    row = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    assert (row["Name"], row["State"], row["Nodes"], row["Runtime"]) == (
        train.name, "Running", "2/2", "torch-distributed",
    )  # fmt: skip


def test_a_deleted_job_takes_all_its_children_with_it(train: Trial) -> None:
    train.train(2, **TORCHRUN)
    await_ready(train)
    runtime_id = train.runtime_id
    train.delete()

    def left() -> list[str]:
        found = [train.jobs.children(plural) for plural in ("jobs", "services", "pods")]
        return [name for some in found for name in some if runtime_id in name]

    eventually(lambda: not left(), 60, 0.1)
