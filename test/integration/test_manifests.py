"""The manifests of overlays/standalone: the config file, and the rights that its roles grant.

See also test_overlays.
"""

from typing import Any

import pytest

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from helpers.renderings import of_kind, render_overlay
from localcluster import images
from tfjob_controller.api.controllerconfig import parse_controller_config

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl) -> list[dict[str, Any]]:
    return render_overlay(administrator, "standalone")


def test_the_controller_reads_the_shipped_config(rendered: list[dict[str, Any]]) -> None:
    (config_map,) = of_kind(rendered, "ConfigMap")
    (deployment,) = of_kind(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (name,) = config_map["data"]
    assert f"--controller-config-file={mount['mountPath']}/{name}" in pod["containers"][0]["args"]
    assert pod["volumes"] == [{"name": mount["name"], "configMap": {"name": config_map["metadata"]["name"]}}]
    config = parse_controller_config(config_map["data"][name])
    assert config.tf_image
    # Nodes of the local cluster have it under this name, as they have the images of the Deployments.
    assert config.initializer_image in images.tagged(images.plain(config.initializer_image))


@pytest.fixture
def people(kubectl: Kubectl) -> Kubectl:
    """In this namespace the users view, edit and admin have Kubernetes' own roles of those names."""
    kubectl.must("apply", "--server-side", "-f", str(MANIFESTS / "base" / "rbac" / "user-roles.yaml"))
    for role in ("view", "edit", "admin"):
        kubectl.must("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
    return kubectl


CAN = {
    "view": {"get tfjobs", "list tfjobs", "watch tfjobs", "get tfjobs/status", "get tfjobs/scale"},
    "edit": {"create tfjobs", "update tfjobs", "patch tfjobs", "delete tfjobs", "patch tfjobs/scale"},
    "admin": {"patch tfjobs/status", "update tfjobs/status"},
}
_READ = ("get", "list", "watch")
_CHANGE = ("create", "update", "patch", "delete")
CAN["view"] |= {f"{verb} {plural}" for verb in _READ for plural in ("trainjobs", "trainingruntimes")}
CAN["view"] |= {"get trainjobs/status", "get trainjobs/scale"}
CAN["edit"] |= {"patch trainjobs/scale"}
CAN["edit"] |= {f"{verb} {plural}" for verb in _CHANGE for plural in ("trainjobs", "trainingruntimes")}
CAN["admin"] |= {"patch trainjobs/status", "update trainjobs/status"}


@pytest.mark.parametrize("user", CAN)
def test_the_roles_of_a_namespace_include_its_jobs(people: Kubectl, user: str) -> None:
    rights = [right for group in CAN.values() for right in sorted(group)]
    # Each role includes those before it.
    included = set().union(*(CAN[role] for role in list(CAN)[: list(CAN).index(user) + 1]))

    def may(right: str) -> bool:
        verb, resource = right.split()
        resource, _, part = resource.partition("/")
        return people.run("auth", "can-i", verb, resource, f"--subresource={part}", f"--as={user}").code == 0

    # The aggregated roles are put together by kube-controller-manager a moment after they were applied.
    eventually(lambda: may(min(CAN[user])))
    assert {right for right in rights if may(right)} == included


def test_a_user_with_edit_can_run_a_job(people: Kubectl) -> None:
    eventually(lambda: people.run("auth", "can-i", "create", "tfjobs", "--as=edit").code == 0)
    people.must("create", "--as=edit", "-f", "-", manifest=tfjob())
    people.must("scale", "--as=edit", "tfjob/example-job", "--replicas=2")
    assert people.run("delete", "--as=view", "tfjob", "example-job").code == 1


def test_nobody_changes_for_all_namespaces_what_jobs_run_but_a_cluster_administrator(people: Kubectl) -> None:
    eventually(lambda: people.run("auth", "can-i", "create", "trainingruntimes", "--as=edit").code == 0)
    for verb in _CHANGE:
        assert people.run("auth", "can-i", verb, "clustertrainingruntimes", "--as=admin").code == 1
