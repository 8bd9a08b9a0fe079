"""The overlay `namespaced` on a real API server: the rights that it grants are sufficient for the controller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, new_token, write_kubeconfig
from helpers.controller import Jobs, running_controller
from helpers.fleet import fleet_kubelet, runs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.renderings import JOBS, SYSTEM, containers_of, named, of_kind, render_overlay
from helpers.rights import Right, await_rights, forbidden, rights_of
from helpers.trainmanifests import trainjob
from localcluster.api import Api, RefusedError
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

RUNTIMES = "tfjob-controller-runtimes"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl) -> list[Object]:
    return render_overlay(administrator, "namespaced")


def test_the_controllers_namespace_flag_is_the_namespace_of_its_role(rendered: list[Object]) -> None:
    (container,) = containers_of(*of_kind(rendered, "Deployment"))
    assert container["env"] == [{"name": "TFJOB_CONTROLLER_NAMESPACE", "value": JOBS}]
    assert named(rendered, "RoleBinding", "tfjob-controller")["metadata"]["namespace"] == JOBS


def test_only_what_is_in_no_namespace_is_given_for_all(rendered: list[Object]) -> None:
    (role,) = of_kind(rendered, "ClusterRole")
    assert {str(right) for right in rights_of(role["rules"])} == {
        "list clustertrainingruntimes",
        "watch clustertrainingruntimes",
    }


def test_both_roles_together_give_what_the_controller_of_the_whole_cluster_has(rendered: list[Object]) -> None:
    shipped = yaml.safe_load_all((MANIFESTS / "base" / "rbac" / "controller-role.yaml").read_text())
    whole = named(shipped, "ClusterRole", "tfjob-controller")["rules"]
    given = [named(rendered, "Role", "tfjob-controller"), *of_kind(rendered, "ClusterRole")]
    assert {right for each in given for right in rights_of(each["rules"])} == set(rights_of(whole))


@pytest.fixture
def account(api: Api, kubectl: Kubectl, rendered: list[Object], namespace: str) -> Iterator[str]:
    """A token of the overlay's ServiceAccount with its rights: both namespaces are that of the test."""
    rights = of_kind(rendered, "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    text = yaml.safe_dump_all(rights).replace(RUNTIMES, f"{RUNTIMES}-{namespace}")
    for old in (SYSTEM, JOBS):
        text = text.replace(f"namespace: {old}\n", f"namespace: {namespace}\n")
    kubectl.must("apply", "--server-side", "-f", "-", manifest=text)
    try:
        token = new_token(api, namespace, "tfjob-controller")
        await_rights(api, token, namespace, Right("kubeflow.org", "tfjobs", "list"))
        await_rights(api, token, "", Right("kubeflow.org", "clustertrainingruntimes", "list"))
        yield token
    finally:
        kubectl.must("delete", "clusterrole,clusterrolebinding", f"{RUNTIMES}-{namespace}")


@contextlib.contextmanager
def working(control_plane: Cluster, account: str, namespace: str, folder: Path) -> Iterator[None]:
    kubeconfig = write_kubeconfig(control_plane, account, folder / "kubeconfig")
    lease = {"leader_elect": True, "leader_elect_lease_namespace": namespace}
    with running_controller(kubeconfig, namespace, **lease) as manager:
        yield
        assert forbidden(manager) == 0


def test_it_runs_both_kinds_of_job_and_is_refused_nothing(
    control_plane: Cluster, api: Api, account: str, namespace: str, tmp_path: Path
) -> None:
    jobs, train = Jobs(api, namespace), Jobs(api, namespace, TRAINJOBS)
    with fleet_kubelet(api, namespace), working(control_plane, account, namespace, tmp_path):
        jobs.submit(tfjob(master(template=runs(0.2)), workers(1, template=runs(0.1))))
        train.submit(trainjob(annotations=runs(0.2)["metadata"]["annotations"]))
        jobs.await_phase("Done", "example-job")
        train.await_phase("Done", "example-train")


def test_it_sees_nothing_of_other_namespaces(api: Api, account: str) -> None:
    user = api.as_token(account)
    for path in ("/apis/kubeflow.org/v1alpha1/tfjobs", "/api/v1/pods", "/api/v1/namespaces/kube-system/secrets/any"):
        with pytest.raises(RefusedError) as refused:
            user.get(path)
        assert refused.value.status == 403
    user.close()
