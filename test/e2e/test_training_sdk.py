"""training-operator's own Python SDK, as it is published, and its own tests, on a real node with this controller.

The tests are files of upstream's module, and run unmodified in a Python that has the SDK. Each waits 15 s between two
looks at its job, so all files run at the same time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from environment.kubeflowsdk import training_sdk_python
from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import running_controller
from helpers.gangscheduler import running_gang_scheduler
from helpers.kubectl import Kubectl
from helpers.kubeflowsdk import sdk_variables
from helpers.policies import attempt
from helpers.poll import eventually
from helpers.v1admission import BY_ID
from helpers.v1policies import apply_policies
from helpers.v1programs import Program, replace_programs, shrink_jobs
from helpers.v1world import job_path
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.crds import CRDS, documents, install_crd
from localcluster.trainingoperator import install_v1_crds, training_operator_module
from tfjob_controller.api.kubeflowv1.types import V1_KINDS
from tfjob_controller.programs.manager import Manager

pytestmark = [pytest.mark.nodes, pytest.mark.long]

Object = dict[str, Any]

CLIENT = Path(__file__).parent / "sdk/training_client.py"
PROGRAMS = {
    "docker.io/kubeflow/jaxjob-dist-spmd-mnist:latest": Program(),
    "docker.io/kubeflow/xgboost-dist-iris:latest": Program(),
    "docker.io/paddlepaddle/paddle:2.4.0rc0-cpu": Program(),
    "gcr.io/kubeflow-ci/tf-mnist-with-summaries:1.0": Program(),
    "horovod/horovod:0.28.1": Program(),
    "kubeflow/pytorch-dist-mnist:latest": Program(),
    # It runs the function of the test.
    "docker.io/pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime": Program("", images.TORCH),
    # It only says this in upstream's test as well.
    "docker.io/hello-world": Program("print('Hello from Docker!')"),
    # Of no test of upstream.
    "fails": Program("raise SystemExit(3)"),
}
FRAMEWORKS = ("jax", "mpi", "paddle", "pytorch", "tf", "xgboost")
PLAIN, GANG = "test_sdk_e2e", "test_sdk_e2e_with_gang_scheduling"
OF_PYTORCH = ("managed_by", "create_from_func", "create_from_image")
TESTS = {
    PLAIN: [*((name, PLAIN) for name in FRAMEWORKS), *(("pytorch", f"{PLAIN}_{more}") for more in OF_PYTORCH)],
    GANG: [(name, GANG) for name in FRAMEWORKS],
}


@pytest.fixture(scope="module")
def cluster(v1_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Upstream's CRDs, and the policies of the component kubeflow-v1."""
    folder = tmp_path_factory.mktemp("policies")
    install_v1_crds(v1_nodes.api)
    for image in (images.BASE, images.TORCH):
        nodes_module.load_image(v1_nodes.folder, image)
    apply_policies(Kubectl(v1_nodes.kubeconfig, folder / "cache"), folder)
    invalid = BY_ID["91 no worker"].manifest
    eventually(lambda: attempt(v1_nodes.api, "POST", job_path("default", "PyTorchJob"), invalid, dryRun="All"))
    return v1_nodes


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = new_namespace(cluster.api, "sdk")
    replace_programs(cluster.api, name, PROGRAMS)
    yield name
    delete_namespace(cluster.api, name)


def controller(cluster: Cluster, namespace: str, **options: str) -> AbstractContextManager[Manager]:
    kinds: Object = {"kubeflow_v1_api": tuple(V1_KINDS), "trainjobs": False}
    return running_controller(cluster.kubeconfig, namespace, **kinds, **options)


@pytest.fixture(scope="module")
def plain(cluster: Cluster, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What came of upstream's tests with the gangs off."""
    with controller(cluster, namespace, gang_scheduling="off"):
        return outcomes(cluster, namespace, tmp_path_factory.mktemp("plain"), "none")


@pytest.fixture(scope="module")
def gangs(cluster: Cluster, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The same of those that run with a gang scheduler only."""
    for crd in documents((CRDS / "scheduling.kubeflow.org_gangs.yaml").read_text()):
        install_crd(cluster.api, crd)
    # Gangs are placed by the requests of jobs, and upstream's are made for more CPUs.
    shrink_jobs(cluster.api, namespace)
    with running_gang_scheduler(cluster.kubeconfig), controller(cluster, namespace, gang_mode="affinity"):
        return outcomes(cluster, namespace, tmp_path_factory.mktemp("gangs"), "volcano")


def outcomes(cluster: Cluster, namespace: str, folder: Path, scheduler: str) -> Mapping[str, str]:
    """Runs upstream's tests; returns for each `<framework>-<test>` why it failed, or an empty text."""
    # Beside the tests is the source of the SDK, and the installed one is to be tested.
    shutil.copytree(training_operator_module() / "sdk/python/test", folder / "test")
    variables = sdk_variables(cluster.kubeconfig) | {"GANG_SCHEDULER_NAME": scheduler}
    running = {name: start(name, namespace, folder, variables) for name in FRAMEWORKS}
    for process in running.values():
        process.wait()
    return {
        f"{name}-{case.get('name')}": text_of(case)
        for name in FRAMEWORKS
        for case in ET.parse(folder / f"{name}.xml").getroot().iter("testcase")
    }


def start(name: str, namespace: str, folder: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    arguments = ["-q", "-p", "no:cacheprovider", f"--junitxml={name}.xml", f"--namespace={namespace}"]
    argv = [training_sdk_python(), "-m", "pytest", *arguments, f"test/e2e/test_e2e_{name}job.py"]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(argv, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT)


def text_of(case: ET.Element) -> str:
    return "\n".join(f"{child.tag}: {child.text}" for child in case if child.tag in ("failure", "error", "skipped"))


@pytest.mark.parametrize(("framework", "test"), TESTS[PLAIN])
def test_a_test_of_upstreams_sdk_passes(plain: Mapping[str, str], framework: str, test: str) -> None:
    assert plain[f"{framework}-{test}"] == ""


@pytest.mark.parametrize(("framework", "test"), TESTS[GANG])
def test_a_test_of_upstreams_sdk_with_gangs_passes(gangs: Mapping[str, str], framework: str, test: str) -> None:
    assert gangs[f"{framework}-{test}"] == ""


def test_a_user_of_the_sdk_sees_pods_logs_events_and_failures(cluster: Cluster, namespace: str) -> None:
    with controller(cluster, namespace, gang_scheduling="off"):
        argv = [training_sdk_python(), CLIENT, namespace, "kubeflow/pytorch-dist-mnist:latest", "fails"]
        variables = os.environ | sdk_variables(cluster.kubeconfig)
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["succeeded"], seen["running"]) == (True, False)
    assert (sorted(seen["pods"]), seen["workers"]) == (["sums-master-0", "sums-worker-0"], ["sums-worker-0"])
    assert sorted(seen["logs"]) == ["sums-master-0", "sums-worker-0"]
    for log in (seen["log of master"], seen["followed"]):
        assert list(log) == ["sums-master-0"]
        assert "rank 0 of 2: the sum is 1" in log["sums-master-0"]
    assert "rank 1 of 2: the sum is 1" in seen["logs"]["sums-worker-0"]
    assert any("Created 2 Pods" in event for event in seen["events"]["pytorchjob/sums"])
    assert "pod/sums-worker-0" in seen["events"]
    assert f"TFJob {namespace}/fails is Failed." in seen["failure"]
    assert seen["listed"] == ["sums", "fails"]
    assert seen["deleted"].startswith(f"Failed to get PyTorchJob: {namespace}/sums. Error: (404)")


def test_every_test_of_upstreams_sdk_is_one_of_these(plain: Mapping[str, str]) -> None:
    assert set(plain) == {f"{framework}-{test}" for tests in TESTS.values() for framework, test in tests}


def test_upstreams_tests_leave_no_job(cluster: Cluster, namespace: str, plain: Mapping[str, str]) -> None:
    """They delete all jobs, and with those go their pods."""
    assert plain
    assert [job["metadata"]["name"] for kind in V1_KINDS for job in cluster.api.list(job_path(namespace, kind))] == []
