"""The children of a TFJob on a real API server: names, labels, owners, a long name, the default server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.manifests import master, parameter_servers, workers
from helpers.playground import Trial, ends

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

SHARED = {"kubeflow.org", "job_type", "runtime_id", "tf_job_name", "task_index"}


def pod_spec(trial: Trial, replica: str) -> Object:
    spec: Object = trial.child_job(replica)["spec"]["template"]["spec"]
    return spec


def training(spec: Object) -> Object:
    (found,) = [each for each in spec["containers"] if each["name"] == "tensorflow"]
    return dict(found)


def labels(trial: Trial, replica_type: str, index: int) -> dict[str, str]:
    return {
        "kubeflow.org": "",
        "job_type": replica_type,
        "runtime_id": trial.runtime_id,
        "tf_job_name": trial.name,
        "task_index": str(index),
    }


def test_labels_and_owners_tell_whose_a_child_is(trial: Trial) -> None:
    trial.submit(master(), workers(2))
    trial.await_phase("Running")
    owner = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "name": trial.name,
        "uid": trial.get()["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    jobs, services = trial.children("jobs"), trial.children("services")
    for replica, replica_type, index in (("master-0", "MASTER", 0), ("worker-1", "WORKER", 1)):
        name, wanted = trial.child(replica), labels(trial, replica_type, index)
        job, service = jobs[name], services[name]
        assert job["metadata"]["labels"] == service["metadata"]["labels"] == service["spec"]["selector"] == wanted
        assert job["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"] == [owner]
        pod = trial.await_pod(replica)["metadata"]
        assert {name: value for name, value in pod["labels"].items() if name in SHARED} == wanted


def test_a_job_of_the_longest_name_runs_and_ends(trial: Trial) -> None:
    named = replace(trial, name="a" * 253)
    named.plays("master-0", ends(0))
    named.submit(master(), workers(1))
    named.await_phase("Done")
    wanted = {f"{'a' * 40}-{role}-{named.runtime_id}-0" for role in ("master", "worker")}
    assert set(named.children("jobs")) == set(named.children("services")) == wanted
    named.clear()


def test_a_ps_without_a_template_gets_the_default_server(trial: Trial) -> None:
    trial.submit(master(), parameter_servers(1), tfImage="localhost/from-the-job")
    trial.await_children("jobs", 2)
    spec, config_map = pod_spec(trial, "ps-0"), f"cm-ps-{trial.runtime_id}"
    server = training(spec)
    assert server["image"] == "localhost/from-the-job"
    assert server["volumeMounts"] == [{"name": "ps-config-volume", "mountPath": "/ps-server"}]
    (volume,) = spec["volumes"]
    assert (volume["name"], volume["configMap"]["name"]) == ("ps-config-volume", config_map)
    (stored,) = trial.await_children("configmaps", 1).values()
    assert stored["metadata"]["name"] == config_map
    assert stored["metadata"]["ownerReferences"][0]["uid"] == trial.get()["metadata"]["uid"]
    ((script_name, script),) = stored["data"].items()
    assert f"/ps-server/{script_name}" in " ".join(server["command"])
    compile(script, script_name, "exec")
