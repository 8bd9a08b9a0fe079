"""docs/first-hour.md, unchanged, on nodes of its own: from an empty cluster to an empty cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.docs import commands
from helpers.docsshell import Shell, follow
from helpers.poll import eventually
from localcluster import images, process, stack, state
from localcluster import nodes as nodes_module
from localcluster.api import Api

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes")]

PAGE = "docs/first-hour.md"
# What an installation leaves is of one of these.
KINDS = (
    "/api/v1/namespaces",
    "/api/v1/pods",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/deployments",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)


@pytest.fixture
def empty_cluster() -> Iterator[Cluster]:
    """One node with the images that the page names, and nothing installed."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{owner}-{os.getpid()}-first-hour")
    plane = stack.up(folder, 1, owner=process.identify(owner), unsafe_no_fsync=True)
    for image in (images.BASE, images.CONTROLLER):
        nodes_module.load_image(folder, image)
    yield Cluster(plane.kubeconfig, Api.from_kubeconfig(plane.kubeconfig), plane)
    stack.down(folder)


def names(api: Api) -> dict[str, set[str]]:
    return {path: {each["metadata"]["name"] for each in api.list(path)} for path in KINDS}


def test_the_page_leads_from_an_empty_cluster_to_an_empty_cluster(empty_cluster: Cluster, tmp_path: Path) -> None:
    api = empty_cluster.api
    eventually(lambda: api.find("/api/v1/namespaces/default/serviceaccounts/default"))
    before = names(api)
    shell = Shell(tmp_path, empty_cluster.kubeconfig)
    for command in commands(PAGE):
        follow(shell, command, {}, has_logs=True)
    eventually(lambda: names(api) == before)
