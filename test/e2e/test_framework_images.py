"""The frameworks' images on real nodes: each holds what its name says, ready to run."""

from __future__ import annotations

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster import images
from localcluster import nodes as nodes_module

pytestmark = pytest.mark.nodes

# With -v, Python names the source of a module that it had to compile, and puts bytecode's names in quotes.
COMPILED = "python3 -v -c 'import {module}' 2>&1 | grep -cE '^# (bytecode is stale|code object from /)'"


@pytest.mark.parametrize(
    ("image", "module"),
    [
        pytest.param(images.TORCH, "torch.distributed.run", id="torch"),
        pytest.param(images.JAX, "jax", id="jax"),
        pytest.param(images.XGBOOST, "xgboost.tracker", id="xgboost"),
        pytest.param(images.MPI, "mpi4py", id="mpi"),
    ],
)
def test_a_framework_is_imported_as_it_was_compiled_in_its_image(
    own_nodes: Cluster, kubectl: Kubectl, image: str, module: str
) -> None:
    nodes_module.load_image(own_nodes.folder, image)
    command = f"python3 -c 'import {module}' && {COMPILED.format(module=module)} || true"
    flags = ("--image", image, "--image-pull-policy=IfNotPresent", "--restart=Never", "--command", "--")
    kubectl.must("run", "one", *flags, "sh", "-c", command)
    eventually(lambda: kubectl.must("get", "pod", "one", "-o", "jsonpath={.status.phase}") == "Succeeded", 60)
    assert kubectl.must("logs", "one") == "0\n"
