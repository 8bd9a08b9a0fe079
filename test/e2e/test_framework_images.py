"""The frameworks' images on real nodes: each contains its framework, ready to run."""

from __future__ import annotations

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.poll import until
from localcluster import images
from localcluster import nodes as nodes_module

pytestmark = pytest.mark.nodes

# With -v, Python names the source of a module that it had to compile, and puts bytecode's names in quotes.
COMPILED = """
python3 -v -c 'import {module}' 2>/said || { tail -n 20 /said; exit 1; }
grep -cE '^# (bytecode is stale|code object from /)' /said || true
"""


@pytest.mark.parametrize(
    ("image", "module"),
    [
        pytest.param(images.TORCH, "torch.distributed.run", id="torch"),
        pytest.param(images.JAX, "jax", id="jax", marks=pytest.mark.long),
        pytest.param(images.XGBOOST, "xgboost.tracker", id="xgboost", marks=pytest.mark.long),
        pytest.param(images.MPI, "mpi4py", id="mpi", marks=pytest.mark.long),
    ],
)
def test_a_framework_is_imported_as_it_was_compiled_in_its_image(
    own_nodes: Cluster, kubectl: Kubectl, image: str, module: str
) -> None:
    nodes_module.load_image(own_nodes.folder, image)
    command = COMPILED.replace("{module}", module)
    flags = ("--image", image, "--image-pull-policy=IfNotPresent", "--restart=Never", "--command", "--")
    kubectl.must("run", "one", *flags, "sh", "-c", command)
    phase = ("get", "pod", "one", "-o", "jsonpath={.status.phase}")
    ended = until(lambda: kubectl.must(*phase), lambda now: now in ("Succeeded", "Failed"), 240)
    assert ended == "Succeeded", kubectl.run("logs", "one").out
    assert kubectl.must("logs", "one") == "0\n"
