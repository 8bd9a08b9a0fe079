"""docs/production.md, unchanged: a reader who follows it has a highly available, monitored controller."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.docs import DOCS
from helpers.docscommands import commands, pages
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.prometheusserver import tools
from localcluster import binaries, images
from localcluster import nodes as nodes_module
from localcluster.foreigncrds import install_monitoring_crds

# Deployments of five pods are rolled out twice and two jobs run, on two processors that may be busy otherwise.
pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]

ROOT = DOCS.parent
PAGE = (DOCS / "production.md").read_text("utf-8")
STEP_SECONDS = 420
# What other pages ask running pods through the API server.
ASKED = [each.text for page in pages() for each in commands(page) if "/proxy/" in each.text]
# What the page calls the images that it builds or pulls.
NAMES = {
    "registry.example.com/tfjob-controller:0.1.0": images.CONTROLLER,
    "registry.example.com/kube-scheduler:v1.36.3": images.KUBE_SCHEDULER,
    # Of the first job: any image with a shell.
    "docker.io/library/busybox:1.37": images.BASE,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a clone of the repository has of what the page needs, with the two files that the reader writes."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    production = tmp_path / "production"
    production.mkdir()
    kustomization, config = blocks("yaml")
    (production / "kustomization.yaml").write_text(kustomization)
    (production / "controller-config.yaml").write_text(config)
    return tmp_path


@pytest.fixture
def cluster(own_nodes: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Nodes that have the images as if they had pulled them, and the operator's kinds; all away afterwards."""
    deployed.await_removal(own_nodes)
    nodes_module.load_image(own_nodes.folder, images.BASE)
    for name, image in NAMES.items():
        nodes_module.load_image(own_nodes.folder, image)
        nodes_module.tag_image(own_nodes.folder, image, name)
    install_monitoring_crds(own_nodes.api)
    yield own_nodes
    kubectl = Kubectl(own_nodes.kubeconfig, tmp_path / "kubectl")
    kinds = ("crd/podmonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com")
    kubectl.run("delete", "--ignore-not-found", "namespace/team-a", "namespace/tfjob-system", *kinds)


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(cluster: Cluster, clone: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "KUBECACHEDIR": str(tmp_path / "cache"),
        "PATH": ":".join([str(path_of_programs(tmp_path)), os.environ["PATH"]]),
    }
    said = []
    for block in blocks("sh"):
        said.append(run(block, clone, environment))
        if "/proxy/" in block:
            assert all(run(text, clone, environment) for text in ASKED)
    lines = [line for text in said for line in text.splitlines()]
    roles = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("leader_election_master_status")]
    assert sorted(roles) == [0.0, 0.0, 1.0]
    assert sum(text.count("yes\n") for text in said) == 2, "both questions of step 4 are answered with yes"
    deployed.await_removal(cluster)


def path_of_programs(tmp_path: Path) -> Path:
    """A folder with what the page calls: kubectl, the plugin and promtool."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubectl").symlink_to(binaries.ensure("kubectl"))
    (folder / "kubectl-tfjob").symlink_to(ROOT / ".venv" / "bin" / "kubectl-tfjob")
    (folder / "promtool").symlink_to(tools().promtool)
    return folder


def run(block: str, folder: Path, environment: dict[str, str]) -> str:
    """What the block printed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
