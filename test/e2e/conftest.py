"""What all end-to-end tests share: namespaces on the real nodes, and the real controller over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster import images
from localcluster import nodes as nodes_module


@pytest.fixture
def space(nodes: Cluster) -> Iterator[str]:
    """A namespace on the real nodes whose ServiceAccount pods can use at once."""
    name = new_namespace(nodes.api, "nodes")
    eventually(lambda: nodes.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield name
    delete_namespace(nodes.api, name)


@pytest.fixture
def own_nodes(nodes: Cluster) -> Cluster:
    """Nodes that a test may hurt, and whose images are ours."""
    if nodes.plane is None:
        pytest.skip("hurts its nodes, so it needs nodes of its own: unset KUBECONFIG")
    return nodes


@pytest.fixture(scope="session")
def tensorflow(nodes: Cluster) -> None:
    """The nodes have TensorFlow's image."""
    if nodes.plane is None:
        pytest.skip("needs the image localhost/tensorflow, which an existing cluster may not have: unset KUBECONFIG")
    nodes_module.load_image(nodes.folder, images.TENSORFLOW)


@pytest.fixture
def kubectl(nodes: Cluster, space: str, tmp_path: Path) -> Kubectl:
    return Kubectl(nodes.kubeconfig, tmp_path / "kubectl", space)


@pytest.fixture
def jobs(nodes: Cluster, space: str, kubectl: Kubectl) -> Iterator[Jobs]:
    """The TFJobs of the test's namespace, and a controller at work there."""
    kubectl.install_crds()
    with running_controller(nodes.kubeconfig, space):
        yield Jobs(nodes.api, space)
