"""Overlays that no other test runs a job with, on real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import deployed
from helpers.cluster import Cluster
from helpers.kubectl import Kubectl

pytestmark = pytest.mark.nodes


@pytest.mark.parametrize(
    ("overlay", "deployments", "gang"),
    [
        pytest.param("dev", ["tfjob-controller"], False, id="dev"),
        pytest.param("gang-affinity", ["gang-scheduler", "tfjob-controller"], True, id="gang-affinity"),
    ],
)
def test_a_job_runs_with_what_the_overlay_installs(
    own_nodes: Cluster, space: str, tmp_path: Path, overlay: str, deployments: list[str], gang: bool
) -> None:
    with deployed.installed(own_nodes, overlay, tmp_path / "installed") as kubectl:
        for name in deployments:
            deployed.await_rollout(kubectl, name)
        user = Kubectl(own_nodes.kubeconfig, tmp_path / "user", space)
        deployed.run_to_end(user, own_nodes, deployed.brief_job("first", gang=gang, cleanPodPolicy="None"))
        pods = own_nodes.api.list(f"/api/v1/namespaces/{space}/pods", "tf_job_name=first")
        # The chief may end before the pods of workers have started, which are deleted then.
        assert pods
        # In affinity mode the gang's places are held by the scheduler that the cluster has.
        assert {pod["spec"]["schedulerName"] for pod in pods} == {"default-scheduler"}
        assert {"nodeAffinity" in pod["spec"].get("affinity", {}) for pod in pods} == {gang}
