"""The shipped manifests as a real API server takes them: all of it is accepted, and the roles give what they say."""

from typing import Any

import pytest
import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from tfjob_controller.api.controllerconfig import parse_controller_config

pytestmark = pytest.mark.cluster

STANDALONE = MANIFESTS / "overlays" / "standalone"
SYSTEM = "tfjob-system"


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(administrator.must("kustomize", str(STANDALONE))))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def test_all_is_accepted_without_a_warning_by_a_namespace_that_takes_only_restricted_pods(
    kubectl: Kubectl, rendered: list[dict[str, Any]]
) -> None:
    for level in ("enforce", "warn"):
        kubectl.must("label", "namespace", kubectl.namespace, f"pod-security.kubernetes.io/{level}=restricted")
    # In this test's namespace, and without a trace: the cluster may be somebody's own.
    text = yaml.safe_dump_all(rendered).replace(f"namespace: {SYSTEM}", f"namespace: {kubectl.namespace}")
    answer = kubectl.run("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", manifest=text)
    assert (answer.code, answer.error) == (0, "")
    assert len(answer.out.splitlines()) == len(rendered)


def test_the_namespace_enforces_restricted_pods(rendered: list[dict[str, Any]]) -> None:
    (namespace,) = of_kind(rendered, "Namespace")
    assert namespace["metadata"]["name"] == SYSTEM
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_controller_reads_the_shipped_config(rendered: list[dict[str, Any]]) -> None:
    (config_map,) = of_kind(rendered, "ConfigMap")
    (deployment,) = of_kind(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (name,) = config_map["data"]
    assert f"--controller-config-file={mount['mountPath']}/{name}" in pod["containers"][0]["args"]
    assert pod["volumes"] == [{"name": mount["name"], "configMap": {"name": config_map["metadata"]["name"]}}]
    assert parse_controller_config(config_map["data"][name]).tf_image


def test_every_binding_names_the_service_account_of_the_deployment(rendered: list[dict[str, Any]]) -> None:
    (deployment,) = of_kind(rendered, "Deployment")
    account = {
        "kind": "ServiceAccount",
        "name": deployment["spec"]["template"]["spec"]["serviceAccountName"],
        "namespace": SYSTEM,
    }
    bindings = of_kind(rendered, "ClusterRoleBinding") + of_kind(rendered, "RoleBinding")
    assert [each["subjects"] for each in bindings] == [[account], [account]]


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
CAN["view"] |= {"get trainjobs/status"}
CAN["edit"] |= {f"{verb} {plural}" for verb in _CHANGE for plural in ("trainjobs", "trainingruntimes")}
CAN["admin"] |= {"patch trainjobs/status", "update trainjobs/status"}


@pytest.mark.parametrize("user", CAN)
def test_whoever_may_see_or_change_a_namespace_may_see_or_change_its_jobs(people: Kubectl, user: str) -> None:
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
