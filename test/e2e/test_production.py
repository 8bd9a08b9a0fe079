"""docs/production.md, unchanged: a reader who follows it has a highly available, monitored controller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.docs import ROOT, commands, pages
from helpers.docsshell import Shell, run_all
from helpers.kubectl import Kubectl
from helpers.prometheusserver import tools
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.foreigncrds import install_monitoring_crds

# Deployments of five pods are rolled out twice and two jobs run, on two processors that may be busy otherwise.
pytestmark = pytest.mark.nodes

PAGE = "docs/production.md"
# The files that the reader writes.
YAML = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE | re.DOTALL)
# What other pages ask running pods through the API server.
ASKED = [command for page in pages() for command in commands(page) if "/proxy/" in command.text]
# What the page calls the images that it builds or pulls.
NAMES = {
    "registry.example.com/tfjob-controller:0.1.0": images.CONTROLLER,
    "registry.example.com/kube-scheduler:v1.36.3": images.KUBE_SCHEDULER,
    # Of the first job: any image with a shell.
    "docker.io/library/busybox:1.37": images.BASE,
}


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


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A reader's shell with promtool, in a clone with the two files that the reader writes."""
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(tools().promtool.parent)]))
    shell = Shell(tmp_path / "reader", cluster.kubeconfig)
    production = shell.folder / "production"
    production.mkdir()
    for name, content in zip(("kustomization", "controller-config"), YAML, strict=True):
        (production / f"{name}.yaml").write_text(content)
    return shell


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(cluster: Cluster, shell: Shell) -> None:
    steps = commands(PAGE)
    of_metrics = next(number for number, command in enumerate(steps) if "/proxy/" in command.text) + 1
    printed = run_all(shell, steps[:of_metrics])
    assert all(run_all(shell, ASKED))
    printed += run_all(shell, steps[of_metrics:])
    lines = [line for text in printed for line in text.splitlines()]
    roles = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("leader_election_master_status")]
    assert sorted(roles) == [0.0, 0.0, 1.0]
    assert sum(text.count("yes\n") for text in printed) == 2, "both questions of step 4 are answered with yes"
    deployed.await_removal(cluster)
