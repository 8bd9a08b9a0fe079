"""The shipped manifests of gang scheduling on real nodes: images, probes, rights, a lost leader, and the removal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.deployed import SYSTEM
from helpers.docs import section
from helpers.docsshell import Shell, run_all
from helpers.kubectl import Kubectl
from helpers.poll import eventually

pytestmark = pytest.mark.nodes

# Runs until somebody creates the file.
WAITS = "import pathlib, time\nwhile not pathlib.Path('/tmp/end').exists(): time.sleep(0.1)"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gang-scheduler"


@pytest.fixture
def installed(own_nodes: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """`kubectl apply -k manifests/overlays/gang-scheduling`; away afterwards."""
    with deployed.installed(own_nodes, "gang-scheduling", tmp_path / "installed") as kubectl:
        yield kubectl


def test_gangs_run_with_the_shipped_manifests_and_outlive_the_leader_and_the_gang_scheduler(
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
    assert_a_gang_outlives_the_gang_scheduler(user, own_nodes, tmp_path / "reader")


def assert_a_gang_outlives_the_gang_scheduler(user: Kubectl, cluster: Cluster, scratch: Path) -> None:
    """Its containers run on while the page's commands remove the gang scheduler, and the operator sees their end."""
    user.must("create", "-f", "-", manifest=deployed.brief_job("third", gang=True, program=WAITS))
    deployed.await_phase(user, cluster, "third", "Running")
    pods = f"/api/v1/namespaces/{user.namespace}/pods"
    eventually(lambda: {pod["status"]["phase"] for pod in cluster.api.list(pods, "tf_job_name=third")} == {"Running"})
    before = {pod["metadata"]["name"]: containers_of(pod) for pod in cluster.api.list(pods, "tf_job_name=third")}
    run_all(Shell(scratch, cluster.kubeconfig), section("docs/gang-scheduling.md", "### Remove it"))
    programs = f"/api/v1/namespaces/{SYSTEM}/pods"
    eventually(lambda: not cluster.api.list(programs, "app.kubernetes.io/name=gang-scheduler"), 120)
    assert {
        pod["metadata"]["name"]: containers_of(pod) for pod in cluster.api.list(pods, "tf_job_name=third")
    } == before
    (chief,) = [name for name in before if name.startswith("third-master-")]
    user.must("exec", chief, "--", "touch", "/tmp/end")
    deployed.await_phase(user, cluster, "third", "Done")
    deployed.run_to_end(user, cluster, deployed.brief_job("fourth", gang=False))


def containers_of(pod: dict[str, Any]) -> list[str]:
    """The id of each container that runs."""
    return [each["containerID"] for each in pod["status"]["containerStatuses"] if "running" in each["state"]]


def run(kubectl: Kubectl, cluster: Cluster, space: str, name: str) -> None:
    deployed.run_to_end(kubectl, cluster, deployed.brief_job(name, gang=True))
    pods = cluster.api.list(f"/api/v1/namespaces/{space}/pods", f"tf_job_name={name}")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"gang-scheduler"}
