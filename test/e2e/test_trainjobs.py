"""TrainJobs of every framework on real nodes: real processes find each other, train, and get the right result."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.realtrainjobs import TrainJobs
from localcluster import images

pytestmark = pytest.mark.nodes

Object = dict[str, Any]


def run(trainjobs: TrainJobs, kubectl: Kubectl, sample: str) -> Object:
    """The status of a sample that succeeded."""
    kubectl.must("apply", "-f", str(MANIFESTS / "samples" / f"{sample}.yaml"))
    return trainjobs.await_success(sample)


def metrics_of(status: Object) -> dict[str, float]:
    return {each["name"]: float(each["value"]) for each in status["metrics"]}


@pytest.mark.parametrize(
    ("framework", "image", "role", "words"),
    [
        # In the shorter run the demo of test_demo.py trains this sample.
        pytest.param("torch", images.TORCH, "node", r"4 ranks agree$", id="torch", marks=pytest.mark.long),
        pytest.param("tensorflow", images.TENSORFLOW, "node", r"2 replicas in step$", id="tensorflow"),
        pytest.param("jax", images.JAX, "node", r"2 processes agree$", id="jax"),
        pytest.param("xgboost", images.XGBOOST, "node", r"2 workers agree$", id="xgboost"),
        pytest.param("mpi", images.MPI, "launcher", r"4 ranks agree, on 2 hosts, 12 steps each$", id="mpi"),
    ],
)
def test_the_processes_of_a_framework_find_each_other_and_train(
    trainjobs: TrainJobs, kubectl: Kubectl, framework: str, image: str, role: str, words: str
) -> None:
    trainjobs.give(image)
    sample = f"trainjob-{framework}"
    status = run(trainjobs, kubectl, sample)
    log = trainjobs.log(sample, role)
    assert re.search(words, log, re.MULTILINE), log
    reported = [float(loss) for loss in re.findall(r"loss=([0-9.e+-]+)", log)]
    assert reported[-1] < reported[0] / 2, log
    assert metrics_of(status)["loss"] == reported[-1]
    assert status["nodes"] == "2/2"


def test_plain_nodes_run_side_by_side(trainjobs: TrainJobs, kubectl: Kubectl) -> None:
    trainjobs.give(images.BASE)
    status = run(trainjobs, kubectl, "trainjob-plain")
    assert status["progress"] == "step 3"
    assert metrics_of(status) == {"loss": 0.1, "step": 3.0}
