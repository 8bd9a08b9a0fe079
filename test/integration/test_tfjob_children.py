"""The children of a TFJob on a real API server: names, labels, owners, the default server, priorities."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import Trial, ends
from helpers.poll import eventually
from localcluster.api import Api, Watch

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


def test_each_replica_is_a_job_and_a_service_of_one_name_and_a_pod_of_the_job(trial: Trial) -> None:
    trial.submit(master(), workers(2), parameter_servers(1))
    trial.await_phase("Running")
    names = {trial.child(replica) for replica in ("master-0", "worker-0", "worker-1", "ps-0")}
    assert set(trial.children("jobs")) == set(trial.children("services")) == names
    pods = trial.await_children("pods", 4)
    assert {name.rpartition("-")[0] for name in pods} == names


def test_the_example_of_the_documentation_gets_the_names_of_the_documentation(trial: Trial) -> None:
    trial.submit(master(), parameter_servers(2), RuntimeId="76no")
    trial.await_children("jobs", 3)
    assert trial.child("ps-1") == f"{trial.name}-ps-76no-1"
    assert trial.get()["spec"]["RuntimeId"] == "76no"
    assert set(trial.children("configmaps")) == {"cm-ps-76no"}


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


@pytest.fixture
def priority_class(api: Api) -> Iterator[str]:
    name, path = f"urgent-{secrets.token_hex(4)}", "/apis/scheduling.k8s.io/v1/priorityclasses"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    api.create(path, kind)
    yield name
    api.delete(f"{path}/{name}")


def test_scheduler_and_priority_are_copied_to_every_pod_that_names_none_of_its_own(
    trial: Trial, priority_class: str
) -> None:
    own = pod_template(container(), schedulerName="mine", priorityClassName="system-cluster-critical")
    trial.submit(
        master(),
        workers(1, template=own),
        parameter_servers(1),
        schedulerName="nobody",
        priorityClassName=priority_class,
    )
    trial.await_children("pods", 3)
    for replica, wanted in (
        ("master-0", ("nobody", priority_class)),
        ("worker-0", ("mine", "system-cluster-critical")),
        ("ps-0", ("nobody", priority_class)),
    ):
        (pod,) = trial.pods(replica)
        assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == wanted


def test_the_runtime_id_is_in_the_spec_before_the_first_child_exists_and_stays(trial: Trial) -> None:
    """Versions are the server's own order of writes, whatever a watch delivers first."""
    api, short = trial.jobs.api, {"timeoutSeconds": "60"}
    of_jobs = api.watch(trial.jobs.path, short)
    of_children = [api.watch(trial.child_path(plural, ""), short) for plural in ("jobs", "services")]
    trial.submit(master(), workers(2))
    identified = first(of_jobs, lambda job: job["metadata"]["name"] == trial.name and "RuntimeId" in job["spec"])
    runtime_id = identified["spec"]["RuntimeId"]
    assert re.fullmatch("[a-z][0-9a-z]{3}", runtime_id)
    for watch in of_children:
        child = first(watch, lambda child: child["metadata"]["labels"].get("tf_job_name") == trial.name)
        assert version(child) > version(identified)
    trial.await_phase("Running")
    assert trial.get()["spec"]["RuntimeId"] == runtime_id


def first(watch: Watch, wanted: Callable[[Object], bool]) -> Object:
    with contextlib.closing(watch):
        return next(obj for kind, obj in watch if kind in ("ADDED", "MODIFIED") and wanted(obj))


def version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def test_jobs_of_one_name_after_another_have_children_of_their_own(trial: Trial) -> None:
    trial.submit(master())
    before = trial.runtime_id
    trial.await_children("jobs", 1)
    trial.delete()
    eventually(lambda: trial.status() == {})
    trial.submit(master())
    assert trial.runtime_id != before
    trial.await_phase("Running")
