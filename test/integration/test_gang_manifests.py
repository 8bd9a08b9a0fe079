"""The manifests of the gang scheduler, as `kubectl apply -k` renders them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.renderings import (
    SYSTEM,
    arguments_of,
    containers_of,
    environment_of,
    named,
    of_kind,
    render,
    render_overlay,
)
from helpers.rights import rights_of
from localcluster.gangscheduler import ENVIRONMENT, NAME
from tfjob_controller.cli import build_parser
from tfjob_controller.options import ExtenderOptions, RunOptions, resolve_extender
from tfjob_controller.programs.policies import gang_policy

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl) -> list[Object]:
    return render_overlay(administrator, "gang-scheduling")


@pytest.fixture
def pod(rendered: list[Object]) -> Object:
    spec: Object = named(rendered, "Deployment", NAME)["spec"]["template"]["spec"]
    return spec


def container(pod: Object, name: str) -> Object:
    (found,) = [each for each in pod["containers"] if each["name"] == name]
    return found


def test_kube_scheduler_is_configured_as_the_one_that_the_tests_run(rendered: list[Object], pod: Object) -> None:
    data = named(rendered, "ConfigMap", f"{NAME}-config")["data"]
    (name,) = data
    assert yaml.safe_load(data[name])["leaderElection"]["leaderElect"]
    scheduler = container(pod, "kube-scheduler")
    (mount,) = scheduler["volumeMounts"]
    assert f"--config={mount['mountPath']}/{name}" in scheduler["args"]
    assert environment_of(scheduler) == {"POD_NAMESPACE": SYSTEM, **ENVIRONMENT}


def test_kube_scheduler_collects_garbage_before_it_reaches_the_containers_limit(pod: Object) -> None:
    limit = container(pod, "kube-scheduler")["resources"]["limits"]["memory"]
    assert limit == "2Gi"
    assert int(ENVIRONMENT["GOMEMLIMIT"].removesuffix("MiB")) < 0.8 * 2048


def test_the_operator_is_that_of_the_overlay_without_the_gang_scheduler(
    administrator: Kubectl, rendered: list[Object]
) -> None:
    assert [each for each in render_overlay(administrator, "standalone") if each not in rendered] == []


def test_images_that_are_named_in_the_overlays_own_file_are_those_of_all_containers(
    administrator: Kubectl, tmp_path: Path
) -> None:
    manifests = Path(shutil.copytree(MANIFESTS, tmp_path / "manifests"))
    overlay = manifests / "overlays" / "gang-scheduling"
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("newName: localhost/", "newName: registry.example.com/"))
    containers = [
        part for each in of_kind(render(administrator, overlay), "Deployment") for part in containers_of(each)
    ]
    assert {each["image"].rpartition("/")[0] for each in containers} == {"registry.example.com"}


def options_of(pod: Object) -> ExtenderOptions:
    """What the shipped flags say."""
    extender = container(pod, "extender")
    command, *argv = extender["command"]
    assert command == "tfjob-controller"
    flags = vars(build_parser().parse_args([*argv, *arguments_of(extender)]))
    return resolve_extender({name: flags[name] for name in flags.keys() - {"command", "show_version"}}, {})


@pytest.fixture
def options(pod: Object) -> ExtenderOptions:
    return options_of(pod)


def test_both_programs_agree_on_address_and_patience_and_nobody_else_reaches_the_extender(
    rendered: list[Object], pod: Object, options: ExtenderOptions
) -> None:
    (text,) = named(rendered, "ConfigMap", f"{NAME}-config")["data"].values()
    (extender,) = yaml.safe_load(text)["extenders"]
    assert extender["urlPrefix"] == f"http://{options.extender_bind_address}" == "http://127.0.0.1:8888"
    assert (options.extender_http_timeout, extender["httpTimeout"]) == (300, "5m")
    assert "8888" not in json.dumps([each["ports"] for each in pod["containers"]])


def test_the_extender_follows_the_lease_of_its_kube_scheduler_which_is_not_that_of_the_clusters_own(
    rendered: list[Object], pod: Object, options: ExtenderOptions
) -> None:
    (text,) = named(rendered, "ConfigMap", f"{NAME}-config")["data"].values()
    assert yaml.safe_load(text)["leaderElection"]["resourceName"] == NAME
    scheduler = container(pod, "kube-scheduler")
    assert f"--leader-elect-resource-namespace={SYSTEM}" in arguments_of(scheduler)
    assert (options.leader_lease_namespace, options.leader_lease_name) == (SYSTEM, NAME)
    role = named(rendered, "Role", f"{NAME}-leader")
    assert role["metadata"]["namespace"] == SYSTEM
    assert role["rules"][0]["resourceNames"] == [NAME]


def test_the_controller_names_the_scheduler_that_is_shipped() -> None:
    assert gang_policy(RunOptions()).scheduler_name == NAME


def test_every_binding_names_the_service_account_of_the_deployment(rendered: list[Object], pod: Object) -> None:
    account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": SYSTEM}
    bindings = [
        each for each in rendered if each["kind"].endswith("RoleBinding") and each["metadata"]["name"].startswith(NAME)
    ]
    assert [each["subjects"] for each in bindings] == [[account]] * 4
    roles = {each["roleRef"]["name"] for each in bindings}
    assert roles == {NAME, f"{NAME}-leader", "system:kube-scheduler", "system:volume-scheduler"}


def test_without_a_kube_scheduler_one_replica_decides_and_the_controller_pins(administrator: Kubectl) -> None:
    rendered = render_overlay(administrator, "gang-affinity")
    spec = named(rendered, "Deployment", NAME)["spec"]
    # Nothing keeps two of them apart.
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    (extender,) = spec["template"]["spec"]["containers"]
    assert extender["name"] == "extender"
    options = options_of(spec["template"]["spec"])
    assert (options.mode, options.leader_lease_name) == ("affinity", "")
    controller = named(rendered, "Deployment", "tfjob-controller")["spec"]["template"]["spec"]["containers"][0]
    assert "--gang-mode=affinity" in controller["args"]
    rights = {str(right) for right in rights_of(named(rendered, "ClusterRole", NAME)["rules"])}
    # A policy says what it may patch.
    assert {each for each in rights if "pods" in each} == {
        "list pods",
        "watch pods",
        "patch pods",
        "create pods/eviction",
    }
    assert "patch gangs/status" in rights
    assert "system:kube-scheduler" not in str(rendered)
    assert "gang-scheduler-config" not in str(rendered)
