"""What the manifests give away: rights, pods' privileges, ports. Read as files, so that no overlay can be forgotten."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.crds import documents
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

Object = dict[str, Any]

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
# Whoever holds one of these can make himself more than he is.
ESCALATING_VERBS = {"escalate", "bind", "impersonate", "approve", "sign", "*"}
ESCALATING_RESOURCES = {
    "*",
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
    "serviceaccounts/token",
    "pods/exec",
    "pods/attach",
    "pods/ephemeralcontainers",
    "pods/portforward",
    "nodes/proxy",
    "certificatesigningrequests",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "customresourcedefinitions",
}
# Whoever may write these can run pods of any account, change what others run, or what reaches them. Each is allowed to
# one of our accounts only where an admission policy says of which objects.
WRITES = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
RISKY = {
    ("", "pods"),
    ("", "pods/status"),
    ("", "pods/binding"),
    ("", "pods/eviction"),
    ("", "services"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "podtemplates"),
    ("batch", "jobs"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("autoscaling.x-k8s.io", "provisioningrequests"),
}
# The Secret of the progress server.
CERTIFICATE = "tfjob-controller-progress-server"
READS_ALL = {"list", "watch", "deletecollection", "update", "patch", "delete"}


def objects(*kinds: str) -> list[Any]:
    return list(_objects(kinds))


def _objects(kinds: tuple[str, ...]) -> Iterator[Any]:
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        # The chart is made of these files, and rendered like them: test_helm_chart.py.
        if {"samples", "helm"} & set(path.parts) or path.name == "kustomization.yaml":
            continue
        for each in _documents(path):
            if each.get("kind") in kinds:
                name = each["metadata"]["name"]
                yield pytest.param(each, id=f"{path.parent.name}/{each['kind']}/{name}")


@functools.cache
def _documents(path: Path) -> list[Object]:
    return documents(path.read_text())


def rules(role: Object) -> list[Object]:
    found: list[Object] = role.get("rules") or []
    return found


@pytest.mark.parametrize("role", objects("Role", "ClusterRole"))
def test_no_role_has_a_wildcard_or_a_way_to_more_rights(role: Object) -> None:
    for rule in rules(role):
        assert not ESCALATING_VERBS & set(rule["verbs"])
        assert not ESCALATING_RESOURCES & set(rule.get("resources", ()))
        assert "*" not in rule.get("apiGroups", ())
        assert "nonResourceURLs" not in rule


@pytest.mark.parametrize("role", objects("Role", "ClusterRole"))
def test_nobody_may_list_change_or_delete_secrets(role: Object) -> None:
    """Of its own certificate, the controller may change the Secret."""
    for rule in rules(role):
        if "secrets" in rule.get("resources", ()) and rule.get("resourceNames") != [CERTIFICATE]:
            assert not READS_ALL & set(rule["verbs"])


def risky_writes(rules: list[Object]) -> set[tuple[str, str, str]]:
    """The group, resource and operation of each right that needs a policy."""
    return {
        (group, resource, WRITES[verb])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if (group, resource) in RISKY and verb in WRITES
    }


def guarded(account: str) -> set[tuple[str, str, str]]:
    """The group, resource and operation of each write of the account that a policy looks at, and refuses."""
    bindings = [param.values[0]["spec"] for param in objects("ValidatingAdmissionPolicyBinding")]
    denied = {each["policyName"] for each in bindings if each["validationActions"] == ["Deny"]}
    user = f"request.userInfo.username == 'system:serviceaccount:tfjob-system:{account}'"
    return {
        (group, resource, operation)
        for policy in (param.values[0] for param in objects("ValidatingAdmissionPolicy"))
        if policy["metadata"]["name"] in denied and [each["expression"] for each in conditions_of(policy)] == [user]
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def conditions_of(policy: Object) -> list[Object]:
    found: list[Object] = policy["spec"]["matchConditions"]
    return found


@pytest.mark.parametrize("role", objects("Role", "ClusterRole"))
def test_a_right_that_leads_to_more_has_a_policy_that_says_of_which_objects(role: Object) -> None:
    """Roles for users have no such right; the binding of the others names the account of the role's own name."""
    account = re.sub("-(leader|progress-server|provisioning)$", "", role["metadata"]["name"])
    assert risky_writes(rules(role)) <= guarded(account)


def test_the_rights_that_lead_to_more_are_known() -> None:
    """So that the test above compares something."""
    found = {each.values[0]["metadata"]["name"]: risky_writes(rules(each.values[0])) for each in objects("ClusterRole")}
    resources = {name: {resource for _, resource, _ in writes} for name, writes in found.items() if writes}
    assert resources == {
        "tfjob-controller": {"jobs", "services", "configmaps", "secrets", "pods", "horizontalpodautoscalers"},
        "gang-scheduler": {"pods", "pods/binding", "pods/eviction"},
        "gang-scheduler-provisioning": {"podtemplates", "provisioningrequests"},
    }
    # These come from the roles system:kube-scheduler and system:volume-scheduler.
    writes = [("", "bindings", "CREATE")]
    writes += [("", each, "UPDATE") for each in ("pods/status", "persistentvolumes", "persistentvolumeclaims")]
    assert set(writes) <= guarded("gang-scheduler")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_pod_groups_of_every_backend_have_a_policy_too(backend: str) -> None:
    resource = BACKENDS[backend].resource
    operations = {"CREATE", "UPDATE", "DELETE"}
    assert {(resource.group, resource.plural, each) for each in operations} <= guarded("tfjob-controller")


@pytest.mark.parametrize("policy", objects("ValidatingAdmissionPolicy"))
def test_a_policy_that_cannot_be_evaluated_refuses_and_its_messages_end_no_job(policy: Object) -> None:
    """The controller tries again what is forbidden, and ends a job for what is invalid."""
    assert policy["spec"]["failurePolicy"] == "Fail"
    is_of_account = "request.userInfo.username == " in conditions_of(policy)[0]["expression"]
    for each in policy["spec"]["validations"]:
        assert each["reason"] == "Forbidden"
        assert not is_of_account or each["message"].startswith(
            ("the controller", "the gang scheduler", "of the spec of a job the controller")
        )


def test_only_the_policies_for_jobs_of_users_apply_to_all_accounts() -> None:
    """A change that leaves the spec as it is passes them, so that no job is stuck that was there before."""
    of_all = {
        policy["metadata"]["name"]: conditions_of(policy)
        for policy in (param.values[0] for param in objects("ValidatingAdmissionPolicy"))
        if "request.userInfo" not in conditions_of(policy)[0]["expression"]
    }
    passes = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
    names = (f"tfjob-controller-kubeflow-v1-{name}" for name in ("validation", "deprecations"))
    assert of_all == {name: [{"name": "spec-is-new", "expression": passes}] for name in names}


@pytest.mark.parametrize("role", objects("ClusterRole"))
def test_only_the_roles_of_users_are_added_to_those_of_the_cluster(role: Object) -> None:
    cluster = "rbac.authorization.k8s.io/aggregate-to-"
    aggregated = [label for label in role["metadata"].get("labels", {}) if label.startswith(cluster)]
    if aggregated:
        assert role["metadata"]["name"].startswith("tfjob-")
        groups = {group for rule in rules(role) for group in rule["apiGroups"]}
        assert groups <= {"kubeflow.org", "scheduling.kubeflow.org", "trainer.kubeflow.org"}


# Prometheus without its operator finds the pods by this role: docs/monitoring.md.
DISCOVERY = "tfjob-controller-discovery"
PROMETHEUS = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}


@pytest.mark.parametrize("binding", objects("RoleBinding", "ClusterRoleBinding"))
def test_rights_go_to_accounts_of_our_own_and_to_no_group(binding: Object) -> None:
    assert {each["kind"] for each in binding["subjects"]} == {"ServiceAccount"}
    assert all(each["name"] in ("tfjob-controller", "gang-scheduler") for each in binding["subjects"]) or (
        binding["roleRef"]["name"],
        binding["subjects"],
    ) == (DISCOVERY, [PROMETHEUS])
    assert binding["roleRef"]["name"] not in ("cluster-admin", "admin", "edit")


def test_prometheus_may_see_pods_in_the_namespace_of_the_programs_and_nothing_else() -> None:
    roles: list[Object] = [parameter.values[0] for parameter in objects("Role")]
    (role,) = [each for each in roles if each["metadata"]["name"] == DISCOVERY]
    assert role["metadata"]["namespace"] == "tfjob-system"
    assert rules(role) == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.parametrize("deployment", objects("Deployment"))
def test_a_pod_has_no_privileges_and_reads_nothing_of_its_node(deployment: Object) -> None:
    spec = deployment["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(set(volume) <= {"name", "configMap", "secret", "emptyDir"} for volume in spec["volumes"])
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "hostPort" not in str(container["ports"])
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("deployment", objects("Deployment"))
def test_no_secret_is_in_arguments_or_variables_and_no_check_of_a_certificate_is_off(deployment: Object) -> None:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        words = " ".join([*container.get("command", ()), *container.get("args", ()), str(container.get("env", ""))])
        for word in ("insecure", "token", "password", "secretKeyRef", "debug-bind-address"):
            assert word not in words
        binds = [each for each in container.get("args", ()) if each.startswith("--extender-bind-address=")]
        assert all(each.split("=")[1].startswith("127.0.0.1:") for each in binds)


@pytest.mark.parametrize("policy", objects("NetworkPolicy"))
def test_a_network_policy_allows_only_metrics_and_browsers_to_the_dashboard(policy: Object) -> None:
    ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    of_dashboard = policy["metadata"]["name"] == "tfjob-dashboard"
    assert ports == ({"https"} if of_dashboard else {"metrics", "scheduler"})
    assert all(rule.get("ports") for rule in policy["spec"]["egress"])


def test_nothing_of_ours_is_offered_beyond_its_pods() -> None:
    """Whoever adds one says in docs/security.md who may reach it, and here."""
    offered = [
        param.values[0] for param in objects("Service", "Ingress", "APIService", "ValidatingWebhookConfiguration")
    ]
    assert [(each["kind"], each["metadata"]["name"]) for each in offered] == [
        ("Service", "tfjob-dashboard"),
        ("Service", "training-operator"),
        ("Service", "tfjob-controller-progress"),
    ]
