"""MPI jobs on the real API server: launcher, nodes, hostfile and keys."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from helpers.playground import Trial
from helpers.poll import eventually
from helpers.trainjobs import await_ready, env_of
from localcluster.api import Api

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
MPIRUN: Object = {"command": ("mpirun", "train")}


def secret_of(api: Api, namespace: str, job: str) -> Object:
    path = f"/api/v1/namespaces/{namespace}/secrets/{job}-mpi-ssh-auth"
    return eventually(lambda: api.find(path)) or {}


def test_launcher_and_nodes_get_hostfile_and_keys(train: Trial) -> None:
    job = train.train(2, trainer={"numProcPerNode": 2}, **MPIRUN)
    await_ready(train)
    first, second = (f"{train.child('node-0')}-{index}" for index in (0, 1))
    service = train.node_service
    (config_map,) = train.children("configmaps").values()
    assert config_map["data"]["hostfile"] == f"{first}.{service} slots=2\n{second}.{service} slots=2\n"
    secret = secret_of(train.jobs.api, train.namespace, train.name)
    assert (secret["type"], secret["immutable"]) == ("kubernetes.io/ssh-auth", True)
    assert b"PRIVATE KEY" in base64.b64decode(secret["data"]["ssh-privatekey"])
    assert base64.b64decode(secret["data"]["ssh-publickey"]).startswith(b"ecdsa-sha2-nistp521 ")
    for each in (config_map, secret):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("TrainJob", job["metadata"]["uid"])
    (launcher,) = train.pods("launcher-0")
    env = env_of(launcher, "launcher")
    assert env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert env["OMPI_MCA_orte_set_default_slots"] == "2"
    assert launcher["spec"]["containers"][0]["command"] == ["mpirun", "train"]
    assert [each["name"] for each in launcher["spec"]["initContainers"]] == ["await-nodes"]
    for index in (0, 1):
        (node,) = train.pods(f"node-{index}")
        assert (node["spec"]["hostname"], node["spec"]["subdomain"]) == ((first, second)[index], service)
        assert "sshd" in " ".join(node["spec"]["containers"][0]["command"])
    assert set(train.children("services")) == {service}
    assert {port["port"] for each in train.children("services").values() for port in each["spec"]["ports"]} == {2222}


def test_a_secret_of_somebody_else_is_reported_and_never_touched(train: Trial) -> None:
    folder = f"/api/v1/namespaces/{train.namespace}/secrets"
    name = f"{train.name}-mpi-ssh-auth"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"mine": "yes"}}
    before = train.jobs.api.create(folder, body)
    train.train(1, **MPIRUN)
    train.await_reason(f"cannot create Secret {name}", "is not this job's")
    train.await_event("FailedCreate", name)
    assert train.jobs.api.get(f"{folder}/{name}") == before
    train.jobs.api.delete(f"{folder}/{name}")
    eventually(lambda: train.jobs.api.find(f"{folder}/{name}"))
    train.await_status(lambda status: "cannot create" not in status.get("reason", ""))
    train.end("launcher-0")
    assert train.await_end()["state"] == "SUCCESS"


def test_no_key_is_said_in_status_or_events(train: Trial) -> None:
    train.train(1, **MPIRUN)
    await_ready(train, 1)
    data = secret_of(train.jobs.api, train.namespace, train.name)["data"]
    told = str((train.get(), train.events(), train.children("jobs"), train.children("pods")))
    for value in data.values():
        assert value not in told
        assert base64.b64decode(value).decode().split("\n")[1][:20] not in told or "PRIVATE" not in told
