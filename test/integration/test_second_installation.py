"""A second controller beside one that leads, and a controller whose rights another installation has taken with it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from helpers.cluster import Cluster, new_token, write_kubeconfig
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from helpers.rights import RBAC, Right, await_rights
from localcluster.crds import install_crds
from localcluster.faultproxy import FaultProxy

pytestmark = pytest.mark.cluster

NAME, SYSTEM = "tfjob-controller", "tfjob-system"
# What a controller without work may send besides reading.
_OF_NO_JOB = ("selfsubjectaccessreviews", "/leases")


@pytest.fixture
def kubeconfig(own_control_plane: Cluster, tmp_path: Path) -> Path:
    """That of the controller of an installation by the manifests."""
    api = own_control_plane.api
    install_crds(api)
    kubectl = Kubectl(own_control_plane.kubeconfig, tmp_path / "cache", SYSTEM)
    kubectl.must("create", "namespace", SYSTEM)
    for name in ("service-account", "controller-role", "leader-role"):
        kubectl.must("apply", "-f", str(RBAC / f"{name}.yaml"))
    token = new_token(api, SYSTEM, NAME)
    await_rights(api, token, "", Right("batch", "jobs", "watch"))
    await_rights(api, token, SYSTEM, Right("coordination.k8s.io", "leases", "create"))
    return write_kubeconfig(own_control_plane, token, tmp_path / "kubeconfig")


@pytest.mark.parametrize("own", [pytest.param("", id="no lease"), pytest.param("default", id="another lease")])
def test_a_second_controller_writes_nothing_and_says_why_until_the_first_has_stopped(
    kubeconfig: Path, own_control_plane: Cluster, tmp_path: Path, own: str
) -> None:
    jobs = Jobs(own_control_plane.api, "default")
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    with FaultProxy(own_control_plane.own.server) as proxy, second, first:
        first.enter_context(running_controller(kubeconfig, "", leader_elect=True, leader_elect_lease_namespace=SYSTEM))
        jobs.submit(tfjob(name="one"))
        jobs.await_phase("Creating", "one")
        admin = proxy.kubeconfig(tmp_path, own_control_plane.own.token)
        election = {"leader_elect": True, "leader_elect_lease_namespace": own} if own else {}
        waiting = second.enter_context(running_controller(admin, "", ready=False, **election))
        reason = (
            f"holds the Lease {SYSTEM}/{NAME} and does the same work: this program starts when that one has stopped"
        )
        eventually(lambda: reason in " ".join(waiting.problems()))
        jobs.submit(tfjob(name="two"))
        jobs.await_phase("Creating", "two")
        written = [each.path for each in proxy.seen if each.method != "GET"]
        assert not [path for path in written if not any(part in path for part in _OF_NO_JOB)]
        first.close()
        eventually(lambda: not waiting.problems())
        jobs.submit(tfjob(name="three"))
        jobs.await_phase("Creating", "three")


def test_a_controller_without_rights_is_not_ready(kubeconfig: Path, own_control_plane: Cluster) -> None:
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = own_control_plane.api.get(f"{bindings}/{NAME}")
    with running_controller(kubeconfig, "") as manager:
        own_control_plane.api.delete(f"{bindings}/{NAME}")
        eventually(lambda: "jobs.batch" in " ".join(manager.problems()))
        assert manager.problems()[0].endswith("its role or the binding is gone; apply the manifests again")
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        own_control_plane.api.create(bindings, binding)
        eventually(lambda: not manager.problems())
