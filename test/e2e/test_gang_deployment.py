"""The shipped manifests of gang scheduling on real nodes: images, probes, rights, and a leader that goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.deployed import SYSTEM
from helpers.kubectl import Kubectl

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gang-scheduler"


@pytest.fixture
def installed(own_nodes: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """`kubectl apply -k manifests/overlays/gang-scheduling`; away afterwards."""
    with deployed.installed(own_nodes, "gang-scheduling", tmp_path / "installed") as kubectl:
        yield kubectl


def test_gangs_run_with_the_shipped_manifests_and_go_on_when_the_leader_goes(
    installed: Kubectl, own_nodes: Cluster, space: str, tmp_path: Path
) -> None:
    for name in ("gang-scheduler", "tfjob-controller"):
        deployed.await_rollout(installed, name)
    user = Kubectl(own_nodes.kubeconfig, tmp_path / "user", space)
    run(user, own_nodes, space, "first")
    leader = own_nodes.api.get(LEASE)["spec"]["holderIdentity"].partition("_")[0]
    installed.must("delete", "pod", leader, "--grace-period=0", "--force")
    run(user, own_nodes, space, "second")
    assert own_nodes.api.get(LEASE)["spec"]["holderIdentity"].partition("_")[0] != leader


def run(kubectl: Kubectl, cluster: Cluster, space: str, name: str) -> None:
    deployed.run_to_end(kubectl, cluster, deployed.brief_job(name, gang=True))
    pods = cluster.api.list(f"/api/v1/namespaces/{space}/pods", f"tf_job_name={name}")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"gang-scheduler"}
