"""Kubeflow's own Python SDK, as it is published, with TrainJobs on real nodes that this controller runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from environment.kubeflowsdk import kubeflow_sdk_python
from helpers.cluster import Cluster
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, local_torch_runtime
from helpers.kubeflowmanifests import kubeflow_runtime, replicated_job
from helpers.kubeflowsdk import Sdk, SdkError, running_sdk, sdk_variables
from helpers.notebooks import EXAMPLES, add_kernel, execute, kernel_home, parameterized, shown
from helpers.poll import eventually
from helpers.realtrainjobs import PATIENCE_SECONDS
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.crds import install_crds
from localcluster.kubeflowtrainer import install_kubeflow_crds

pytestmark = pytest.mark.nodes

Object = dict[str, Any]

FRAMEWORK = "trainer.kubeflow.org/framework"
# The SDK starts `python`, which Debian's image does not have under this name.
PYTHON = '#!/bin/sh\nexec python3 "$@"\n'
WAITING = {"func": "wait_for_a_file", "func_args": {"path": "/tmp/go"}}


@dataclass(frozen=True, slots=True)
class SdkUser:
    """A user with the SDK, and the same namespace as its administrator sees it."""

    cluster: Cluster
    namespace: str
    kubectl: Kubectl
    sdk: Sdk

    def train(self, runtime: str = "plain", **trainer: Any) -> str:
        name: str = self.sdk.call("train", runtime=runtime, trainer=trainer)
        return name

    def await_status(self, name: str, *statuses: str) -> Object:
        found: Object = self.sdk.call(
            "wait_for_job_status", name=name, status=statuses, timeout=int(PATIENCE_SECONDS), polling_interval=1
        )
        return found

    def steps(self, name: str) -> dict[str, str]:
        """Returns the status of each step of a job."""
        return {each["name"]: each["status"] for each in self.sdk.call("get_job", name=name)["steps"]}

    def let_end(self, pod: str) -> None:
        self.kubectl.must("exec", pod, "--", "touch", "/tmp/go")

    def pods(self) -> list[Object]:
        return self.cluster.api.list(f"/api/v1/namespaces/{self.namespace}/pods", "jobset.sigs.k8s.io/jobset-name")


@pytest.fixture
def user(nodes: Cluster, space: str, kubectl: Kubectl, tmp_path: Path) -> Iterator[SdkUser]:
    """Upstream's CRDs and runtime, a runtime of the test's namespace, and a controller that works there."""
    if nodes.plane is None:
        pytest.skip("needs images that an existing cluster may not have: unset KUBECONFIG")
    install_crds(nodes.api)
    install_kubeflow_crds(nodes.api)
    nodes_module.load_image(nodes.folder, images.BASE)
    nodes.api.create(f"/api/v1/namespaces/{space}/configmaps", python_map())
    nodes.api.create(f"{GROUP_PATH}/namespaces/{space}/trainingruntimes", plain_runtime())
    nodes.api.create_if_missing(RUNTIMES_PATH, local_torch_runtime())
    with (
        running_controller(nodes.kubeconfig, space, kubeflow_trainer_api=True),
        running_sdk(nodes.kubeconfig, space, tmp_path) as sdk,
    ):
        yield SdkUser(nodes, space, kubectl, sdk)


def python_map() -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "python"}, "data": {"python": PYTHON}}


def plain_runtime() -> Object:
    """Returns a TrainingRuntime of one node without a framework, whose function is not tried again."""
    mount = {"name": "python", "mountPath": "/usr/local/bin/python", "subPath": "python"}
    container = {"image": images.BASE, "imagePullPolicy": "Never", "volumeMounts": [mount]}
    job = replicated_job(container=container, job={"backoffLimit": 0})
    job["template"]["spec"]["template"]["spec"] |= {
        "volumes": [{"name": "python", "configMap": {"name": "python", "defaultMode": 0o755}}],
        # The SDK's shell does not pass SIGTERM on to the function.
        "terminationGracePeriodSeconds": 1,
    }
    runtime = kubeflow_runtime(job, name="plain", policy={"numNodes": 1})
    return {
        **runtime,
        "kind": "TrainingRuntime",
        "metadata": {"name": "plain", "labels": {FRAMEWORK: "plain"}},
    }


def test_runtimes_of_the_namespace_and_of_the_cluster_are_listed(user: SdkUser) -> None:
    found = {each["name"]: each for each in user.sdk.call("list_runtimes")}
    assert found["plain"]["kind"] == "RuntimeKind.TRAINING_RUNTIME"
    assert found["torch-distributed"]["kind"] == "RuntimeKind.CLUSTER_TRAINING_RUNTIME"
    assert user.sdk.call("get_runtime", name="plain") == found["plain"]
    torch = user.sdk.call("get_runtime", name="torch-distributed")
    assert (torch["trainer"]["framework"], torch["trainer"]["num_nodes"]) == ("torch", 1)
    with pytest.raises(SdkError, match="Failed to get Runtime: none"):
        user.sdk.call("get_runtime", name="none")


def test_a_function_is_trained_by_torch_on_two_nodes(user: SdkUser) -> None:
    nodes_module.load_image(user.cluster.folder, images.TORCH)
    arguments = {"greeting": "hello"}
    name = user.train("torch-distributed", func="add_ranks", func_args=arguments, image=images.TORCH, num_nodes=2)
    status = user.await_status(name, "Complete", "Failed")["status"]
    logs = ["\n".join(user.sdk.lines("get_job_logs", name=name, step=f"node-{index}")) for index in (0, 1)]
    assert status == "Complete", logs
    # The job ends with the last container, and the kubelet reports the end of the pod a moment later.
    steps = {"node-0": "Succeeded", "node-1": "Succeeded"}
    eventually(lambda: user.steps(name) == steps, PATIENCE_SECONDS)
    assert user.sdk.call("get_job", name=name)["num_nodes"] == 2
    assert sorted(re.findall(r"hello from rank (\d) of 2: the sum is 1", "\n".join(logs))) == ["0", "1"]


def test_a_log_is_followed_while_its_job_runs(user: SdkUser) -> None:
    name = user.train(**WAITING)
    job = user.await_status(name, "Running")
    assert user.sdk.call("get_job", name=name)["status"] == "Running"
    (step,) = job["steps"]
    lines = user.sdk.lines("get_job_logs", name=name, follow=True)
    assert next(lines) == "waiting for /tmp/go"
    user.let_end(step["pod_name"])
    assert [*lines] == ["done"]
    assert user.await_status(name, "Complete")["status"] == "Complete"
    assert [*user.sdk.lines("get_job_logs", name=name)] == ["waiting for /tmp/go", "done"]


def test_a_failure_of_the_function_ends_the_wait(user: SdkUser) -> None:
    name = user.train(func="fail")
    with pytest.raises(SdkError, match=f"RuntimeError: TrainJob {name} is Failed"):
        user.await_status(name, "Complete")
    assert user.sdk.call("get_job", name=name)["status"] == "Failed"
    assert [*user.sdk.lines("get_job_logs", name=name)][-1] == "ValueError: no such dataset"


def test_jobs_are_listed_until_they_are_deleted(user: SdkUser) -> None:
    names = [user.train(**WAITING) for _ in range(2)]
    for each in names:
        user.await_status(each, "Running")
    assert sorted(each["name"] for each in user.sdk.call("list_jobs")) == sorted(names)
    assert user.sdk.call("list_jobs", runtime="torch-distributed") == []
    user.sdk.call("delete_job", name=names[0])
    assert [each["name"] for each in user.sdk.call("list_jobs", runtime="plain")] == names[1:]
    eventually(lambda: len(user.pods()) == 1, PATIENCE_SECONDS)
    (left,) = user.pods()
    assert left["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == names[1]
    with pytest.raises(SdkError, match="Failed to get TrainJob"):
        user.sdk.call("get_job", name=names[0])


@pytest.mark.long
def test_the_notebook_runs_from_its_first_cell_to_its_last(user: SdkUser) -> None:
    nodes_module.load_image(user.cluster.folder, images.TORCH)
    notebook = parameterized(EXAMPLES / "kubeflow-sdk.ipynb", namespace=user.namespace, image=images.TORCH)
    argv = [str(kubeflow_sdk_python()), "-m", "ipykernel_launcher", "-f"]
    with kernel_home() as home:
        add_kernel(home, "kubeflow-sdk", argv, sdk_variables(user.cluster.kubeconfig))
        execute(notebook, "kubeflow-sdk")
    assert "torch-distributed torch pytorch/pytorch:" in shown(notebook, "runtimes")
    assert shown(notebook, "train") in ("'Created'", "'Running'")
    assert "step 500 of 500, 2 processes: loss 0.0" in shown(notebook, "logs")
    assert shown(notebook, "wait") == "'Complete'"
    assert shown(notebook, "delete") == "[]"
