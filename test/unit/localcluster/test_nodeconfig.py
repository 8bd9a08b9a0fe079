"""What nodes are told: shares that add up, and files that their programs can read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from localcluster import network, node, nodeconfig
from localcluster.nodeconfig import Capacity, NodePlan


def plan(index: int = 1) -> NodePlan:
    return NodePlan(
        index=index,
        network=network.Plan(201),
        logs=Path("/state/logs/node-1"),
        folder=Path("/state/nodes/node-1"),
        programs={name: Path("/bin") / name for name in node.PROGRAMS},
        kubelet_config=Path("/state/users/kubelet"),
        proxy_config=Path("/state/users/proxy"),
        client_ca="PEM",
        capacity=Capacity(2, 8192, 2),
        restrict_oom_score=True,
    )


@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("capacity", [(1, 2048), (64, 262144)], ids=lambda one: f"{one[0]} processors")
def test_nodes_together_have_no_more_than_the_machine(capacity: tuple[int, int], count: int) -> None:
    processors, memory = capacity
    reserved = Capacity(processors, memory, count).reserved()
    cpu, mebibytes = (int(reserved["cpu"].removesuffix("m")), int(reserved["memory"].removesuffix("Mi")))
    assert 0 < (processors * 1000 - cpu) * count <= processors * 1000
    assert 0 < (memory - mebibytes) * count <= memory


def test_every_file_is_of_the_format_that_its_program_reads() -> None:
    files = nodeconfig.files(plan())
    assert tomllib.loads(files["containerd.toml"])["version"] == 3
    for name in ("kubelet.json", "kube-proxy.json", "cni/pods.conflist"):
        assert json.loads(files[name])


@pytest.mark.parametrize("restricted", [True, False])
def test_the_runtime_respects_a_machine_that_lets_nobody_lower_oom_scores(restricted: bool) -> None:
    given = {**{name: getattr(plan(), name) for name in NodePlan.__slots__}, "restrict_oom_score": restricted}
    runtime = tomllib.loads(nodeconfig.containerd(NodePlan(**given)))["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is restricted


def test_nodes_of_one_stack_share_no_group_address_or_pod_range() -> None:
    one, two = plan(1), plan(2)
    assert one.cgroup != two.cgroup
    assert nodeconfig.cni(one) != nodeconfig.cni(two)
    assert nodeconfig.kubelet(one)["address"] != nodeconfig.kubelet(two)["address"]


def test_names_that_are_not_the_clusters_do_not_exist() -> None:
    blocks = nodeconfig.corefile("10.201.0.1", Path("/kubeconfig")).split("\n.:53 ")
    assert len(blocks) == 2
    assert "kubernetes cluster.local" in blocks[0]
    assert "rcode NXDOMAIN" in blocks[1]
    assert "forward" not in blocks[1]
