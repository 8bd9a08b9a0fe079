"""The children of a TFJob on a real API server: names, labels, owners, TF_CONFIG, the default server, accelerators."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from helpers.kubernetesversion import running_version
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.playground import Trial, ends
from helpers.poll import eventually
from localcluster.api import Api, Watch
from tfjob_controller.programs.manager import RESTART_RULES_SINCE

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

GPU, OLD_GPU = "nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu"
SHARED = {"kubeflow.org", "job_type", "runtime_id", "tf_job_name", "task_index"}


def pod_spec(trial: Trial, replica: str) -> Object:
    spec: Object = trial.child_job(replica)["spec"]["template"]["spec"]
    return spec


def training(spec: Object) -> Object:
    (found,) = [each for each in spec["containers"] if each["name"] == "tensorflow"]
    return dict(found)


def variables(each: Object) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in each.get("env", ())}


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


def test_a_service_is_headless_and_answers_before_its_pod_is_ready(trial: Trial) -> None:
    trial.submit(master(tfPort=2345))
    (service,) = trial.await_children("services", 1).values()
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    (port,) = spec["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("tf-port", 2345, 2345)


def test_a_child_job_runs_one_pod_and_gives_up_with_it(trial: Trial) -> None:
    trial.submit(master(template=pod_template(container())))
    trial.await_children("jobs", 1)
    spec = trial.child_job("master-0")["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
    assert (spec["podReplacementPolicy"], "podFailurePolicy" in spec) == ("Failed", False)


def test_a_restart_policy_that_is_missing_means_on_failure_of_the_container(trial: Trial) -> None:
    """A chief is restarted in its pod after retryable errors only. Older kubelets restart nothing in a pod."""
    trial.submit(master(template=pod_template(container())), workers(1, template=pod_template(container())))
    trial.await_children("jobs", 2)
    chief, worker = pod_spec(trial, "master-0"), pod_spec(trial, "worker-0")
    assert (chief["restartPolicy"], worker["restartPolicy"]) == ("Never", "Never")
    if running_version() < RESTART_RULES_SINCE:
        assert "restartPolicy" not in training(worker)
        return
    assert training(worker)["restartPolicy"] == "OnFailure"
    assert training(chief)["restartPolicy"] == "Never"
    (rule,) = training(chief)["restartPolicyRules"]
    assert (rule["action"], 127 in rule["exitCodes"]["values"], 128 in rule["exitCodes"]["values"]) == (
        "Restart",
        False,
        True,
    )


def test_tf_config_is_this_very_text(trial: Trial) -> None:
    trial.submit(parameter_servers(2), workers(1, tfPort=3333), master())
    trial.await_children("jobs", 4)
    names = {replica: trial.child(replica) for replica in ("master-0", "ps-0", "ps-1", "worker-0")}
    wanted = (
        f'{{"cluster":{{"master":["{names["master-0"]}:2222"],"ps":["{names["ps-0"]}:2222","{names["ps-1"]}:2222"],'
        f'"worker":["{names["worker-0"]}:3333"]}},"task":{{"type":"ps","index":1}},"environment":"cloud"}}'
    )
    assert variables(training(pod_spec(trial, "ps-1")))["TF_CONFIG"] == wanted


def test_tf_config_is_there_for_a_single_replica_too_and_leaves_out_a_type_without_replicas(trial: Trial) -> None:
    trial.submit(master(), workers(0), parameter_servers(0))
    trial.await_children("jobs", 1)
    config = json.loads(variables(training(pod_spec(trial, "master-0")))["TF_CONFIG"])
    assert list(config["cluster"]) == ["master"]
    assert config["task"] == {"type": "master", "index": 0}


def test_tf_config_is_the_training_containers_alone_and_comes_after_its_own_variables(trial: Trial) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "TF_CONFIG", "value": "mine"}, {"name": "B", "value": "2"}]
    template = pod_template(container("side", env=env), container(env=env), initContainers=[container("init")])
    trial.submit(master(template=template))
    trial.await_children("jobs", 1)
    spec = pod_spec(trial, "master-0")
    assert list(variables(training(spec))) == ["A", "B", "TF_CONFIG"]
    assert variables(spec["containers"][0]) == {"A": "1", "TF_CONFIG": "mine", "B": "2"}
    assert "env" not in spec["initContainers"][0]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        pytest.param("a" * 253, "a" * 40, id="as long as can be"),
        pytest.param("b" * 39 + "-" + "b" * 10, "b" * 39, id="a dash at the cut"),
        pytest.param("v1.2.dotted", "v1-2-dotted", id="dots"),
        pytest.param("0-first", "j0-first", id="a digit first"),
    ],
)
def test_a_job_of_any_name_runs_and_ends(trial: Trial, name: str, prefix: str) -> None:
    named = replace(trial, name=name)
    named.plays("master-0", ends(0))
    named.submit(master(), workers(1))
    named.await_phase("Done")
    wanted = {f"{prefix}-{role}-{named.runtime_id}-0" for role in ("master", "worker")}
    assert set(named.children("jobs")) == set(named.children("services")) == wanted
    named.clear()


# The default parameter server


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


def test_the_image_of_the_default_server_is_the_configs_where_the_job_names_none(trial: Trial) -> None:
    trial.submit(master(), parameter_servers(1))
    trial.await_children("jobs", 2)
    assert training(pod_spec(trial, "ps-0"))["image"] == "localhost/from-the-config"


def test_a_ps_template_without_the_training_container_keeps_what_it_has_and_gets_the_server(trial: Trial) -> None:
    own = {"name": "data", "emptyDir": {}}
    template = pod_template(container("side"), volumes=[own], serviceAccountName="default")
    trial.submit(master(), parameter_servers(1, template=template))
    trial.await_children("jobs", 2)
    spec = pod_spec(trial, "ps-0")
    assert [each["name"] for each in spec["containers"]] == ["side", "tensorflow"]
    assert [each["name"] for each in spec["volumes"]] == ["data", "ps-config-volume"]
    assert spec["serviceAccountName"] == "default"


def test_a_ps_with_its_own_container_gets_no_server_and_the_job_no_config_map(trial: Trial) -> None:
    trial.submit(master(), parameter_servers(1, template=pod_template(container(image="localhost/mine"))))
    trial.await_phase("Running")
    assert training(pod_spec(trial, "ps-0"))["image"] == "localhost/mine"
    assert trial.children("configmaps") == {}


# Accelerators, scheduler, priority


def asking(part: str, resource: str) -> Object:
    """A container for an accelerator, as far as the API server lets one ask (a request needs its limit)."""
    amounts = {"limits": {resource: 1}} if part == "limits" else {"requests": {resource: 1}, "limits": {resource: 1}}
    return container(resources=amounts)


def test_containers_that_request_an_accelerator_get_its_volumes_and_variables(trial: Trial) -> None:
    template = pod_template(container("side"), asking("limits", GPU))
    old = pod_template(asking("requests", OLD_GPU))
    trial.submit(master(), workers(1, template=template), parameter_servers(1, template=old))
    trial.await_children("jobs", 3)
    equipped = pod_spec(trial, "worker-0")
    assert [(each["name"], each["hostPath"]["path"]) for each in equipped["volumes"]] == [("lib", "/opt/gpu/lib64")]
    mounts = [(each["name"], each["mountPath"]) for each in training(equipped)["volumeMounts"]]
    assert mounts == [("lib", "/usr/local/gpu/lib64")]
    assert variables(training(equipped))["LD_LIBRARY_PATH"] == "/usr/local/gpu/lib64"
    assert not equipped["containers"][0].keys() & {"env", "volumeMounts"}
    assert variables(training(pod_spec(trial, "ps-0")))["OLD_GPU"] == "1"
    plain = pod_spec(trial, "master-0")
    assert "volumes" not in plain
    assert list(variables(training(plain))) == ["TF_CONFIG"]


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
    eventually(lambda: trial.status() == {}, 20)
    trial.submit(master())
    assert trial.runtime_id != before
    trial.await_phase("Running")


def test_the_whole_example_of_the_tutorial_is_accepted_as_it_stands(trial: Trial) -> None:
    """`tfjob()` without arguments is the tutorial's manifest."""
    trial.submit(*tfjob()["spec"]["replicaSpecs"])
    trial.await_children("jobs", 4)
