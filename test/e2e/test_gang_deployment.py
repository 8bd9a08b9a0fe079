"""The shipped manifests of gang scheduling on real nodes: images, probes, rights, and a leader that goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.deployed import SYSTEM
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from localcluster import images

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gang-scheduler"

Object = dict[str, Any]


@pytest.fixture
def installed(own_nodes: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """`kubectl apply -k manifests/overlays/gang-scheduling`; away afterwards."""
    with deployed.installed(own_nodes, "gang-scheduling", tmp_path / "installed") as kubectl:
        yield kubectl


def job(name: str) -> Object:
    """A gang whose pods do nothing."""
    template = pod_template(
        container(
            image=images.BASE,
            command=["python3", "-c", "pass"],
            imagePullPolicy="Never",
            resources={"requests": {"cpu": "10m"}},
        )
    )
    body = tfjob(master(template=template), workers(2, template=template), name=name)
    body["spec"]["gang"] = {"enabled": True}
    return body


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
    kubectl.must("create", "-f", "-", manifest=job(name))
    path = f"/apis/kubeflow.org/v1alpha1/namespaces/{space}/tfjobs/{name}"
    eventually(lambda: cluster.api.get(path).get("status", {}).get("phase") == "Done", 90, 0.2)
    pods = cluster.api.list(f"/api/v1/namespaces/{space}/pods", f"tf_job_name={name}")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"gang-scheduler"}
