"""Upstream's example manifests on real nodes: the replicas meet by what the operator tells them, and the jobs succeed.

The jobs are upstream's. Their images cannot be had here, so pods run other programs that do the same (v1programs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from helpers.realtrainjobs import PATIENCE_SECONDS
from helpers.v1examples import example
from helpers.v1programs import Program, replace_programs
from helpers.v1world import job_path
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.trainingoperator import install_v1_crds
from tfjob_controller.api.kubeflowv1.types import V1_KINDS

pytestmark = [pytest.mark.nodes, pytest.mark.long]

Object = dict[str, Any]

# It lets torchrun start the processes, as upstream's example does, and these print their ranks.
ECHO = """
import os, sys
PROGRAM = '''
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} was there")
dist.destroy_process_group()
'''
with open("/tmp/echo.py", "w") as file:
    file.write(PROGRAM)
os.execvp("python3", ["python3", "-m", "torch.distributed.run", "--rdzv_backend=c10d", "/tmp/echo.py"])
"""
PROGRAMS = {
    "docker.io/kubeflowkatib/pytorch-mnist:v1beta1-45c5727": Program(),
    "ghcr.io/kubeflow/training-v1/jaxjob-simple:latest": Program(),
    "ghcr.io/kubeflow/training-v1/pytorch-elastic-example-echo:latest": Program(ECHO, images.TORCH),
    "ghcr.io/kubeflow/training-v1/tf-dist-mnist-test:latest": Program(),
    "ghcr.io/kubeflow/training-v1/tf-mnist-with-summaries:latest": Program(),
    "ghcr.io/kubeflow/training-v1/xgboost-dist-iris:latest": Program(),
    "horovod/horovod:0.28.1": Program(),
    "registry.baidubce.com/paddlepaddle/paddle:2.4.0rc0-cpu": Program(),
}
# For each example the replica whose log tells the result, and what it says.
RESULTS = {
    "jax/cpu-demo/demo": ("worker-0", "rank 0 of 2: the sum is 1"),
    "mpi/tensorflow-mnist": ("launcher", "2 workers were reached"),
    "paddlepaddle/simple-cpu": ("worker-0", "rank 0 of 2: the sum is 1"),
    # Each of two replicas has a process for each of its CPUs.
    "pytorch/elastic/echo/echo": ("worker-0", "was there"),
    "pytorch/simple": ("master-0", "rank 0 of 2: the sum is 1"),
    "tensorflow/dist-mnist/tf_job_mnist": ("chief-0", "rank 0 of 4: the sum is 6"),
    "tensorflow/simple": ("worker-0", "rank 0 of 2: the sum is 1"),
    "xgboost/xgboostjob": ("master-0", "rank 0 of 3: the sum is 3"),
}


@dataclass(frozen=True, slots=True)
class Examples:
    cluster: Cluster
    namespace: str

    def conditions(self, job: Object) -> list[str]:
        found = self.cluster.api.get(job_path(self.namespace, job["kind"], job["metadata"]["name"]))
        return [each["type"] for each in found.get("status", {}).get("conditions", ()) if each["status"] == "True"]


@pytest.fixture(scope="module")
def examples(v1_nodes: Cluster) -> Iterator[Examples]:
    """All of them, which run at the same time."""
    install_v1_crds(v1_nodes.api)
    for image in (images.BASE, images.TORCH):
        nodes_module.load_image(v1_nodes.folder, image)
    namespace = new_namespace(v1_nodes.api, "examples")
    replace_programs(v1_nodes.api, namespace, PROGRAMS)
    options: Object = {"kubeflow_v1_api": tuple(V1_KINDS), "trainjobs": False, "gang_scheduling": "off"}
    with running_controller(v1_nodes.kubeconfig, namespace, **options):
        for name in RESULTS:
            manifest = example(name)
            v1_nodes.api.create(job_path(namespace, manifest["kind"]), manifest)
        yield Examples(v1_nodes, namespace)
    delete_namespace(v1_nodes.api, namespace)


@pytest.mark.parametrize("name", RESULTS)
def test_an_example_succeeds(examples: Examples, tmp_path: Any, name: str) -> None:
    job, (replica, expected) = example(name), RESULTS[name]
    ends = {"Succeeded", "Failed"}
    eventually(lambda: ends.intersection(examples.conditions(job)), PATIENCE_SECONDS)
    kubectl = Kubectl(examples.cluster.kubeconfig, tmp_path / "cache", examples.namespace)
    log = kubectl.run("logs", f"{job['metadata']['name']}-{replica}", "--tail=-1").out
    assert examples.conditions(job) == ["Created", "Succeeded"], log
    assert expected in log
