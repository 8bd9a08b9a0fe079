"""TrainJobs of every framework on real nodes: real processes find each other, train, and get the right result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import running_controller
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.api import Api
from tfjob_controller.api.controllerconfig import ControllerConfig

pytestmark = pytest.mark.nodes

# Several interpreters with large libraries start on two processors that may be busy otherwise.
PATIENCE_SECONDS = 240.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainJobs:
    """Those of one namespace."""

    api: Api
    namespace: str

    def status(self, name: str) -> Object:
        found = self.api.get(f"/apis/kubeflow.org/v2alpha1/namespaces/{self.namespace}/trainjobs/{name}")
        status: Object = found.get("status", {})
        return status


@pytest.fixture
def trainjobs(nodes: Cluster, space: str, kubectl: Kubectl) -> Iterator[TrainJobs]:
    """The TrainJobs of the test's namespace, with the built-in runtimes, and a controller at work there."""
    kubectl.install_crds()
    kubectl.must("apply", "--server-side", "--force-conflicts", "-k", str(MANIFESTS / "base" / "runtimes"))
    config = ControllerConfig(initializer_image=images.INITIALIZER)
    with running_controller(nodes.kubeconfig, space, config=config):
        yield TrainJobs(nodes.api, space)


@pytest.fixture
def give(nodes: Cluster) -> Callable[..., None]:
    """Gives the nodes these images."""

    def load(*names: str) -> None:
        if nodes.plane is None:
            pytest.skip("needs images that an existing cluster may not have: unset KUBECONFIG")
        for name in names:
            nodes_module.load_image(nodes.folder, name)

    return load


def run(trainjobs: TrainJobs, kubectl: Kubectl, sample: str) -> Object:
    """The status of a sample that succeeded."""
    kubectl.must("apply", "-f", str(MANIFESTS / "samples" / f"{sample}.yaml"))
    eventually(lambda: trainjobs.status(sample).get("phase") in ("Done", "Failed"), PATIENCE_SECONDS, 0.1)
    status = trainjobs.status(sample)
    assert (status["phase"], status["state"]) == ("Done", "SUCCESS"), status
    return status


def log_of(kubectl: Kubectl, sample: str, role: str = "node", index: int = 0) -> str:
    labels = f"train_job_name={sample},job_type={role},task_index={index}"
    return kubectl.must("logs", "-l", labels, "--tail=-1")


def metrics_of(status: Object) -> dict[str, float]:
    return {each["name"]: float(each["value"]) for each in status["metrics"]}


@pytest.mark.parametrize(
    ("framework", "image", "role", "words"),
    [
        pytest.param("torch", images.TORCH, "node", r"4 ranks agree$", id="torch"),
        pytest.param("tensorflow", images.TENSORFLOW, "node", r"2 replicas in step$", id="tensorflow"),
        pytest.param("jax", images.JAX, "node", r"2 processes agree$", id="jax"),
        pytest.param("xgboost", images.XGBOOST, "node", r"2 workers agree$", id="xgboost"),
        pytest.param("mpi", images.MPI, "launcher", r"4 ranks agree, on 2 hosts$", id="mpi"),
    ],
)
def test_the_processes_of_a_framework_find_each_other_and_train(
    trainjobs: TrainJobs, kubectl: Kubectl, give: Callable[..., None], framework: str, image: str, role: str, words: str
) -> None:
    give(image)
    sample = f"trainjob-{framework}"
    status = run(trainjobs, kubectl, sample)
    log = log_of(kubectl, sample, role)
    assert re.search(words, log, re.MULTILINE), log
    reported = [float(loss) for loss in re.findall(r"loss=([0-9.e+-]+)", log)]
    assert reported[-1] < reported[0] / 2, log
    assert metrics_of(status)["loss"] == reported[-1]
    assert status["nodes"] == ("0/2" if role == "launcher" else "2/2")


def test_plain_nodes_run_side_by_side(trainjobs: TrainJobs, kubectl: Kubectl, give: Callable[..., None]) -> None:
    give(images.BASE)
    status = run(trainjobs, kubectl, "trainjob-plain")
    assert status["progress"] == "step 3"
    assert metrics_of(status) == {"loss": 0.1, "step": 3.0}
