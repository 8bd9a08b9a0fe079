"""Every overlay and every component, found by their folders: a real API server accepts all of them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.kubectl import Kubectl
from helpers.renderings import (
    COMPONENTS,
    CRDS_OVERLAY,
    CRDS_OVERLAYS,
    JOBS,
    PROGRAMS,
    SYSTEM,
    arguments_of,
    containers_of,
    environment_of,
    moved,
    named,
    of_kind,
    our_own,
    own_selectors,
    port_names,
    render_overlay,
    render_with,
    selects,
    template_of,
)
from localcluster import binaries, images
from localcluster.api import Api
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.cli import build_parser
from tfjob_controller.options import (
    DashboardOptions,
    ExtenderOptions,
    RunOptions,
    resolve,
    resolve_dashboard,
    resolve_extender,
)

pytestmark = pytest.mark.cluster

# What components are for: one that changes the gang scheduler needs it there.
EVERYTHING = "gang-scheduling"
# kustomize takes the policies for kinds of a namespace and gives them one, which the API server drops.
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", *POLICIES)
RESTRICTED = "pod-security.kubernetes.io/{}=restricted"
_RENDERED: dict[tuple[str, ...], list[dict[str, Any]]] = {}

Object = dict[str, Any]


# Whatever a user may install: each overlay of programs, and one that has everything with each component.
EACH = [(overlay,) for overlay in PROGRAMS] + [(EVERYTHING, each) for each in COMPONENTS]
# With another gang backend there is no gang scheduler, for which some components are.
# kubeflow-v1-mpi contains kubeflow-v1.
ANY_BACKEND = [each for each in COMPONENTS if not each.startswith("gang-") and each != "kubeflow-v1"]
# Few that contain every Deployment of each overlay, in each of its forms, and every component together with others.
TOGETHER = [
    *(("standalone",), ("namespaced",), ("dev",), ("standalone", "gang-backend-volcano")),
    ("gang-affinity", *ANY_BACKEND),
    (
        "ha-monitored",
        "dashboard",
        "kubeflow-trainer",
        "kubeflow-v1-mpi",
        "node-autoscaler",
        "progress-server",
        "history",
    ),
]


@pytest.fixture(params=TOGETHER, ids="+".join)
def rendered(request: pytest.FixtureRequest, administrator: Kubectl, tmp_path: Path) -> list[Object]:
    overlay, *components = key = request.param
    if key not in _RENDERED:
        given = (tmp_path, overlay, *components)
        _RENDERED[key] = render_with(administrator, *given) if components else render_overlay(administrator, overlay)
    return _RENDERED[key]


@pytest.fixture
def deployments(rendered: list[Object]) -> list[Object]:
    return of_kind(rendered, "Deployment")


@pytest.fixture
def restricted(kubectl: Kubectl) -> Kubectl:
    """In a namespace that takes only restricted pods."""
    kubectl.must("label", "namespace", kubectl.namespace, *(RESTRICTED.format(each) for each in ("enforce", "warn")))
    return kubectl


@pytest.fixture
def priority_class(restricted: Kubectl, rendered: list[Object]) -> Iterator[str]:
    """A real one of this test's own, as the manifests have it, if they have one: else pods that name it are refused."""
    name = f"priority-{restricted.namespace}"
    classes = of_kind(rendered, "PriorityClass")
    for each in classes:
        restricted.must("create", "-f", "-", manifest={**each, "metadata": {"name": name}})
    yield name if classes else ""
    for _ in classes:
        restricted.must("delete", "priorityclass", name)


@pytest.mark.parametrize("rendered", EACH, indirect=True, ids="+".join)
def test_all_is_accepted_without_a_warning(restricted: Kubectl, rendered: list[Object]) -> None:
    assert_accepted(restricted, our_own(rendered))


@pytest.mark.parametrize("overlay", CRDS_OVERLAYS)
def test_the_crds_are_accepted_without_a_warning(kubectl: Kubectl, overlay: str) -> None:
    crds = render_overlay(kubectl, overlay)
    # The cluster has the TFJob of v1alpha1, in whose place the API server takes no other one.
    served = [crd for crd in crds if overlay == CRDS_OVERLAY or crd["metadata"]["name"] != TFJOBS.full_name]
    assert len(served) == len(crds) - (overlay != CRDS_OVERLAY)
    assert_accepted(kubectl, served)


def test_the_tfjob_of_v1_does_not_take_the_place_of_that_of_v1alpha1(kubectl: Kubectl) -> None:
    (crd,) = [crd for crd in render_overlay(kubectl, CRDS_OVERLAYS[1]) if crd["metadata"]["name"] == TFJOBS.full_name]
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    answer = kubectl.run(*arguments, manifest=yaml.safe_dump(crd))
    assert answer.code != 0
    assert "status.storedVersions" in answer.error


def assert_accepted(kubectl: Kubectl, objects: list[Object]) -> None:
    """The server would take all of them into the namespace of `kubectl`, and warns of none."""
    text = moved(objects, kubectl.namespace)
    answer = kubectl.run("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", manifest=text)
    assert (answer.code, answer.error) == (0, "")
    assert len(answer.out.splitlines()) == len(objects)


@pytest.mark.parametrize("rendered", [("ha",)], indirect=True)
def test_what_was_applied_by_the_client_can_be_upgraded_by_the_server(
    restricted: Kubectl, rendered: list[Object]
) -> None:
    """The pages install overlays by `kubectl apply -k`, and upgrade them by `kubectl apply --server-side -k`.

    The server lets kubectl take over its own fields, unless a list lacks what the server has added by default.
    """
    objects = [each for each in rendered if each["kind"] not in CLUSTER_WIDE]
    restricted.must("apply", "-f", "-", manifest=moved(objects, restricted.namespace))
    newer = copy.deepcopy(objects)
    for container in itertools.chain.from_iterable(map(containers_of, of_kind(newer, "Deployment"))):
        container["image"] += "-newer"
    text = moved(newer, restricted.namespace)
    answer = restricted.run("diff", "--server-side", "-f", "-", manifest=text)
    assert (answer.code, answer.error) == (1, "")
    assert "-newer" in answer.out
    answer = restricted.run("apply", "--server-side", "-f", "-", manifest=text)
    assert (answer.code, answer.error) == (0, "")


def of_this_kubernetes(image: str) -> str:
    """Returns the image in the version of the cluster, which an administrator sets for kube-scheduler."""
    return image.replace(binaries.PROGRAMS["kube-scheduler"].version, binaries.kubernetes_version())


def test_nodes_that_were_given_the_images_need_no_registry(deployments: list[Object]) -> None:
    for container in itertools.chain.from_iterable(map(containers_of, deployments)):
        image = of_this_kubernetes(container["image"])
        assert image in images.tagged(images.plain(image))
        assert container["imagePullPolicy"] == "IfNotPresent"


def test_the_pods_themselves_are_accepted_by_a_namespace_that_takes_only_restricted_ones(
    restricted: Kubectl, api: Api, deployments: list[Object], priority_class: str
) -> None:
    """A Deployment is accepted even where none of its pods ever will be."""
    for each in deployments:
        account = {"metadata": {"name": template_of(each)["spec"]["serviceAccountName"]}}
        api.create(f"/api/v1/namespaces/{restricted.namespace}/serviceaccounts", account)
    pods = [pod_of(each, priority_class) for each in deployments]
    answer = restricted.run("create", "--dry-run=server", "-f", "-", manifest=yaml.safe_dump_all(pods))
    assert (answer.code, answer.error) == (0, "")
    assert len(answer.out.splitlines()) == len(deployments) > 0


def pod_of(deployment: Object, priority_class: str) -> Object:
    template = template_of(deployment)
    spec = template["spec"] | ({"priorityClassName": priority_class} if "priorityClassName" in template["spec"] else {})
    meta = {"name": deployment["metadata"]["name"], "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_the_namespace_enforces_restricted_pods(rendered: list[Object]) -> None:
    namespace = named(rendered, "Namespace", SYSTEM)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {each["metadata"]["namespace"] for each in of_kind(rendered, "Deployment", "ServiceAccount")} == {SYSTEM}


def test_every_namespaced_object_names_its_namespace(rendered: list[Object]) -> None:
    """Else it is made where kubectl happens to be, and a monitor or a policy there sees none of our pods."""
    others = [each for each in rendered if each["kind"] not in CLUSTER_WIDE]
    assert {each["metadata"].get("namespace") for each in others} <= {SYSTEM, JOBS}


def test_every_selector_selects(rendered: list[Object], deployments: list[Object]) -> None:
    for deployment in deployments:
        assert all(selects(each, deployment) for each in own_selectors(deployment))
    for budget in of_kind(rendered, "PodDisruptionBudget"):
        assert budget["metadata"]["namespace"] == SYSTEM
        assert [each for each in deployments if selects(budget["spec"]["selector"], each)]
    for policy in of_kind(rendered, "NetworkPolicy"):
        assert policy["metadata"]["namespace"] == SYSTEM
        assert [each for each in deployments if selects(policy["spec"]["podSelector"], each)]


def test_every_monitor_scrapes_a_port_that_pods_have(rendered: list[Object], deployments: list[Object]) -> None:
    for monitor in of_kind(rendered, "PodMonitor"):
        (scraped,) = [each for each in deployments if selects(monitor["spec"]["selector"], each)]
        assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= port_names(scraped)


def test_no_two_deployments_share_pods(deployments: list[Object]) -> None:
    for one, other in itertools.permutations(deployments, 2):
        assert not selects(one["spec"]["selector"], other)


def test_every_deployment_has_one_disruption_budget(rendered: list[Object], deployments: list[Object]) -> None:
    budgets = of_kind(rendered, "PodDisruptionBudget")
    for each in deployments:
        (budget,) = [one for one in budgets if selects(one["spec"]["selector"], each)]
        assert budget["spec"]["maxUnavailable"] == 1


def test_a_network_policy_allows_the_ports_that_pods_have(rendered: list[Object], deployments: list[Object]) -> None:
    for policy in (each["spec"] for each in of_kind(rendered, "NetworkPolicy")):
        let_in = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        for deployment in (each for each in deployments if selects(policy["podSelector"], each)):
            # Probes come from the node, which no policy blocks.
            assert port_names(deployment) - {"health"} <= let_in
            assert "health" not in let_in


def test_probes_use_ports_that_exist(deployments: list[Object]) -> None:
    for container in (each for deployment in deployments for each in containers_of(deployment)):
        own = {port["name"] for port in container["ports"]}
        asked = {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")}
        assert asked <= own


def test_every_container_says_what_memory_it_may_have_and_what_it_needs(deployments: list[Object]) -> None:
    for container in (each for deployment in deployments for each in containers_of(deployment)):
        resources = container["resources"]
        # A limit of CPU would slow down the very moments in which it matters.
        assert (set(resources["requests"]), set(resources["limits"])) == ({"cpu", "memory"}, {"memory"})


RESOLVERS: dict[str, Callable[[Object, Object], RunOptions | ExtenderOptions | DashboardOptions]] = {
    "run": resolve,
    "extender": resolve_extender,
    "dashboard": resolve_dashboard,
}


def options_of(container: Object) -> RunOptions | ExtenderOptions | DashboardOptions:
    """What the shipped flags and variables say; an unknown one ends the test."""
    _, *argv = container["command"]
    flags = vars(build_parser().parse_args([*argv, *arguments_of(container)]))
    command = flags["command"]
    given = {name: flags[name] for name in flags.keys() - {"command", "show_version"}}
    return RESOLVERS[command](given, environment_of(container))


def our_containers(deployments: list[Object]) -> list[Object]:
    found = [each for deployment in deployments for each in containers_of(deployment)]
    return [each for each in found if each["command"][0] == "tfjob-controller"]


def test_metrics_and_health_are_served_on_the_ports_that_the_manifest_names(deployments: list[Object]) -> None:
    for container in our_containers(deployments):
        options, ports = options_of(container), {port["name"]: port["containerPort"] for port in container["ports"]}
        if isinstance(options, DashboardOptions):
            served = {"https": options.dashboard_bind_address, "health": options.health_probe_bind_address}
        else:
            served = {"metrics": options.metrics_bind_address, "health": options.health_probe_bind_address}
        if isinstance(options, RunOptions) and options.progress_server:
            served["progress"] = options.progress_server_bind_address
        assert {name: address.port for name, address in served.items() if address} == ports
        # On all interfaces: Prometheus, the kubelet and the pods of jobs are elsewhere.
        assert {address.host for address in served.values() if address} == {""}


# Kubernetes makes the one in each namespace, and whoever installs the dashboard or the history makes the others.
BROUGHT = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("Secret", "tfjob-dashboard-tls"),
    ("PersistentVolumeClaim", "tfjob-history"),
}


def test_what_a_pod_names_is_there(rendered: list[Object], deployments: list[Object]) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in rendered}
    for spec in (template_of(each)["spec"] for each in deployments):
        assert ("ServiceAccount", spec["serviceAccountName"]) in there
        volumes = [each for each in spec.get("volumes", ()) if "emptyDir" not in each]
        config_maps = {("ConfigMap", each["configMap"]["name"]) for each in volumes if "configMap" in each}
        secrets = {("Secret", each["secret"]["secretName"]) for each in volumes if "secret" in each}
        claims = {
            ("PersistentVolumeClaim", each["persistentVolumeClaim"]["claimName"])
            for each in volumes
            if "persistentVolumeClaim" in each
        }
        assert len(config_maps) + len(secrets) + len(claims) == len(volumes)
        assert config_maps | secrets | claims <= there | BROUGHT
        if "priorityClassName" in spec:
            assert ("PriorityClass", spec["priorityClassName"]) in there


def test_every_binding_gives_a_role_that_is_there_to_an_account_that_is_used(
    rendered: list[Object], deployments: list[Object]
) -> None:
    accounts = [template_of(each)["spec"]["serviceAccountName"] for each in deployments]
    there = {(each["kind"], each["metadata"]["name"], each["metadata"].get("namespace")) for each in rendered}
    for binding in of_kind(rendered, "RoleBinding", "ClusterRoleBinding"):
        role, namespace = binding["roleRef"], binding["metadata"].get("namespace")
        shipped = (role["kind"], role["name"], namespace if role["kind"] == "Role" else None) in there
        assert shipped or role["name"].startswith("system:")
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", SYSTEM)
        assert subject["name"] in accounts


def test_a_policy_concerns_the_account_of_a_deployment_and_is_bound(
    rendered: list[Object], deployments: list[Object]
) -> None:
    specs = [template_of(each)["spec"] for each in deployments]
    # Without a token nobody can act as the account.
    accounts = {each["serviceAccountName"] for each in specs if each.get("automountServiceAccountToken", True)}
    users = {
        condition["expression"]
        for policy in of_kind(rendered, "ValidatingAdmissionPolicy")
        for condition in policy["spec"]["matchConditions"]
        if "userInfo.username ==" in condition["expression"]
    }
    assert users == {f"request.userInfo.username == 'system:serviceaccount:{SYSTEM}:{each}'" for each in accounts}
    names, bound = ({each["metadata"]["name"] for each in of_kind(rendered, kind)} for kind in POLICIES)
    assert names == bound


# What each of them is for.


def test_ha_survives_the_loss_of_a_node_and_of_a_zone(administrator: Kubectl) -> None:
    rendered = render_overlay(administrator, "ha")
    deployments = of_kind(rendered, "Deployment")
    assert {each["metadata"]["name"]: each["spec"]["replicas"] for each in deployments} == {
        "tfjob-controller": 3,
        "gang-scheduler": 2,
    }
    for deployment in deployments:
        spec = template_of(deployment)["spec"]
        spread = {each["topologyKey"]: each["whenUnsatisfiable"] for each in spec["topologySpreadConstraints"]}
        assert spread == {"kubernetes.io/hostname": "DoNotSchedule", "topology.kubernetes.io/zone": "ScheduleAnyway"}
        assert [each for each in of_kind(rendered, "NetworkPolicy") if selects(each["spec"]["podSelector"], deployment)]
        assert spec["priorityClassName"]


def test_a_gang_scheduler_that_nothing_keeps_apart_from_a_second_one_has_one_replica_with_any_component(
    administrator: Kubectl, tmp_path: Path
) -> None:
    rendered = render_with(administrator, tmp_path, "gang-affinity", *ANY_BACKEND)
    spec = named(rendered, "Deployment", "gang-scheduler")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_dev_has_one_replica_that_logs_all(administrator: Kubectl) -> None:
    (deployment,) = of_kind(render_overlay(administrator, "dev"), "Deployment")
    (container,) = containers_of(deployment)
    options = options_of(container)
    assert deployment["spec"]["replicas"] == 1
    assert (options.log_level, options.log_format) == ("debug", "console")
