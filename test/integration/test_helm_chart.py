"""The Helm chart and the kustomize overlays render the same objects for the same settings."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.helm import CHART, IMAGES, Helm, Values, merged
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.renderings import (
    ANOTHER_NAMESPACE,
    COMPONENTS,
    CRDS_OVERLAYS,
    JOBS,
    PROGRAMS,
    SYSTEM,
    arguments_of,
    containers_of,
    named,
    of_kind,
    render,
    render_overlay,
    render_with,
    template_of,
)

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
Key = tuple[str, str, str]

# The overlays have no image of a version, and another one for kube-scheduler.
TAGS: Values = {
    "image": {"tag": "latest"},
    "gangScheduler": {"kubeScheduler": {"image": {"tag": "v1.36.3"}}},
}
NO_CRDS: Values = {"crds": {"install": False}}
GANGS: Values = {"gangScheduler": {"enabled": True}}
HA = merged(
    GANGS,
    {"highAvailability": {"enabled": True}, "priorityClass": {"enabled": True}, "networkPolicies": {"enabled": True}},
)
# What a user of each overlay sets.
OVERLAY_VALUES: dict[str, Values] = {
    "standalone": {},
    "namespaced": {"watchNamespace": JOBS},
    "gang-scheduling": GANGS,
    "gang-affinity": merged(GANGS, {"gangScheduler": {"mode": "affinity"}}),
    "ha": HA,
    "ha-monitored": merged(HA, {"monitoring": {"enabled": True}}),
    "kubeflow-trainer": {"kubeflowTrainer": {"enabled": True}, "progressServer": {"enabled": True}},
    "dev": {"controller": {"replicas": 1, "extraArgs": ["--log-level=debug", "--log-format=console"]}},
}
COMPONENT_VALUES: dict[str, Values] = {
    "high-availability": {"highAvailability": {"enabled": True}},
    "priority-class": {"priorityClass": {"enabled": True}},
    "network-policies": {"networkPolicies": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "gang-affinity": {"gangScheduler": {"mode": "affinity"}},
    "node-autoscaler": {"gangScheduler": {"nodeAutoscaler": {"enabled": True}}},
    "dashboard": {"dashboard": {"enabled": True}},
    "kubeflow-trainer": {"kubeflowTrainer": {"enabled": True}},
    "kubeflow-v1": {"kubeflowV1": {"enabled": True}},
    "progress-server": {"progressServer": {"enabled": True}},
    "history": {"history": {"claimName": "tfjob-history"}},
    **{f"gang-backend-{each}": {"gangBackend": each} for each in ("volcano", "coscheduling", "kubernetes", "kueue")},
}
# One that changes the gang scheduler needs it; with another backend there is none.
# The chart has no value for MPIJobs.
ON_GANGS = [each for each in COMPONENTS if not each.startswith("gang-backend-") and each != "kubeflow-v1-mpi"]
COMBINATIONS = [
    *((overlay,) for overlay in PROGRAMS),
    # "gang-scheduling" contains what is in "standalone".
    *(("standalone", each) for each in COMPONENTS if each.startswith("gang-backend-")),
    *(("gang-scheduling", each) for each in ON_GANGS),
    # Components that change what others add.
    ("ha", "gang-affinity", "monitoring", "dashboard", "kubeflow-trainer", "kubeflow-v1", "progress-server", "history"),
    ("namespaced", "gang-backend-kueue", "priority-class", "kubeflow-trainer", "kubeflow-v1", "progress-server"),
    ("standalone", "high-availability", "gang-backend-volcano", "network-policies", "progress-server"),
]

# Differences, which docs/install.md lists.
HELM_LABELS = {
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
}
HELM_ANNOTATIONS = {"helm.sh/resource-policy"}
CHECKSUM = "checksum/config"
CONFIG_MAP_HASH = re.compile(r"-[a-z0-9]{10}$")
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path / "helm", SYSTEM)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """Without a cluster, which rendering does not need."""
    return Kubectl(Path(os.devnull), tmp_path / "kubectl")


@pytest.mark.parametrize("combination", COMBINATIONS, ids="+".join)
def test_the_chart_renders_what_kustomize_renders(
    kubectl: Kubectl, helm: Helm, tmp_path: Path, combination: tuple[str, ...]
) -> None:
    overlay, *components = combination
    by_kustomize = render_with(kubectl, tmp_path, overlay, *components)
    values = merged(TAGS, NO_CRDS, OVERLAY_VALUES[overlay], *(COMPONENT_VALUES[each] for each in components))
    rendered = helm.template(values)
    if overlay == "namespaced":
        by_kustomize = [each for each in render_in_two_namespaces(kubectl, tmp_path) if not is_for_users(each)]
    expected, found = comparable(by_kustomize), comparable(rendered)
    assert expected.keys() == found.keys()
    for key, each in expected.items():
        assert found[key] == each, key


def render_in_two_namespaces(kubectl: Kubectl, folder: Path) -> list[Object]:
    """An overlay for one namespace is in two; the namespace of the kustomization would move all objects to one.

    Cluster-scoped objects have the names of a further install, as those of such a release.
    """
    path = folder / "kustomization.yaml"
    text = {key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "namespace"}
    text["transformers"] = [os.path.relpath(ANOTHER_NAMESPACE.resolve(), folder.resolve())]
    path.write_text(yaml.safe_dump(text))
    return render(kubectl, folder)


@pytest.mark.parametrize(
    ("overlay", "values"), list(zip(CRDS_OVERLAYS, ({}, COMPONENT_VALUES["kubeflow-v1"]), strict=True))
)
def test_the_chart_has_the_crds_of_the_overlay(kubectl: Kubectl, helm: Helm, overlay: str, values: Values) -> None:
    found = [each for each in helm.template(values) if each["kind"] == "CustomResourceDefinition"]
    # The chart cannot give the rights that MPIJobs need.
    expected = [each for each in render_overlay(kubectl, overlay) if each["metadata"]["name"] != "mpijobs.kubeflow.org"]
    assert comparable(found) == comparable(expected)
    kept = [each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for each in found]
    assert kept == ["keep"] * len(expected)


def test_the_chart_has_the_runtimes(kubectl: Kubectl, helm: Helm) -> None:
    values: Values = {"runtimes": {"install": True}}
    found = [each for each in helm.template(values) if each["kind"] == "ClusterTrainingRuntime"]
    assert comparable(found) == comparable(render(kubectl, MANIFESTS / "base" / "runtimes"))


def test_helm_finds_nothing_wrong_with_the_chart(helm: Helm) -> None:
    said = helm.must("lint", str(CHART), "--strict", values=IMAGES)
    assert [line for line in said.splitlines() if line.startswith("[") and "icon is recommended" not in line] == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"controler": {}}, "- at '': additional properties 'controler' not allowed", id="a typo"),
        pytest.param(
            {"controller": {"replicas": "two"}}, "- at '/controller/replicas': got string, want", id="a wrong type"
        ),
        pytest.param(
            {"gangBackend": "volcan"}, "- at '/gangBackend': value must be one of '', 'volcano'", id="a choice"
        ),
        pytest.param({"watchNamespace": "Team_A"}, "- at '/watchNamespace': 'Team_A' does not match", id="a name"),
        pytest.param(
            {"gangBackend": "volcano", **GANGS},
            "gangBackend=volcano and gangScheduler.enabled=true exclude each other: set one of them",
            id="two gang schedulers",
        ),
        pytest.param(
            {"watchNamespace": "team", **GANGS}, "unset watchNamespace, or install", id="gangs of one namespace"
        ),
        pytest.param(
            {"gangScheduler": {"enabled": True, "mode": "affinity", "replicas": 2}},
            "gangScheduler.replicas must be 1 in the mode affinity",
            id="two that reserve",
        ),
        pytest.param(
            {"image": {"repository": ""}}, "image.repository is required: no image is published", id="no image"
        ),
        pytest.param(
            merged(GANGS, {"gangScheduler": {"kubeScheduler": {"image": {"repository": ""}}}}),
            "gangScheduler.kubeScheduler.image.repository is required",
            id="no image of kube-scheduler",
        ),
        pytest.param({"watchNamespace": "kube-system"}, "the controller runs no jobs in", id="a system namespace"),
        pytest.param({"watchNamespace": SYSTEM}, "runs no jobs in its own namespace", id="the own namespace"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(helm: Helm, values: Values, words: str) -> None:
    answer = helm.run("template", "release", str(CHART), values=merged(IMAGES, values))
    assert answer.code == 1
    assert [line for line in answer.error.splitlines() if words in line] != []


def test_values_reach_the_pods(helm: Helm) -> None:
    """Those that have no counterpart in a component."""
    pod: Values = {
        "resources": {"limits": {"memory": "3Gi"}},
        "extraArgs": ["--log-level=debug"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "podAnnotations": {"note": "x"},
        "podLabels": {"team": "y"},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    common: Values = {
        "image": {"repository": "example/op", "digest": "sha256:1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "dashboard": {"enabled": True, "hosts": ["jobs.example.com"], "tlsSecretName": "own"},
    }
    prefixes = ("controller", "gangScheduler", "dashboard")
    rendered = helm.template(merged(common, GANGS, NO_CRDS, dict.fromkeys(prefixes, pod)))
    for deployment in of_kind(rendered, "Deployment"):
        template = template_of(deployment)
        (container,) = [each for each in containers_of(deployment) if each["image"] == "example/op@sha256:1"]
        assert container["resources"]["limits"] == {"memory": "3Gi"}
        assert container["args"][-1] == "--log-level=debug"
        assert container["env"][-1] == {"name": "A", "value": "b"}
        assert template["metadata"]["annotations"]["note"] == "x"
        assert template["metadata"]["labels"]["team"] == "y"
        assert {key: template["spec"][key] for key in ("nodeSelector", "tolerations", "affinity")} == {
            key: pod[key] for key in ("nodeSelector", "tolerations", "affinity")
        }
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert {each["imagePullPolicy"] for each in containers_of(deployment)} == {"Always"}
    dashboard = named(rendered, "Deployment", "tfjob-dashboard")
    assert f"--hosts=tfjob-dashboard.{SYSTEM}.svc,jobs.example.com" in arguments_of(containers_of(dashboard)[0])
    assert {"secretName": "own", "defaultMode": 0o440} in [
        each.get("secret") for each in template_of(dashboard)["spec"]["volumes"]
    ]


@pytest.mark.parametrize("values", [GANGS, OVERLAY_VALUES["namespaced"], OVERLAY_VALUES["kubeflow-trainer"]])
def test_all_of_it_goes_to_the_namespace_of_the_release(tmp_path: Path, values: Values) -> None:
    rendered = Helm(tmp_path, "elsewhere").template(merged(NO_CRDS, values))
    namespaces = {each["metadata"].get("namespace") for each in rendered if each["kind"] not in CLUSTER_WIDE}
    assert namespaces == {"elsewhere"} | ({JOBS} if "watchNamespace" in values else set())
    # Rights and policies name its accounts.
    without_names = re.sub(rf"(name|priorityClassName): {SYSTEM}\b", "", yaml.safe_dump(rendered))
    assert SYSTEM not in without_names
    assert "system:serviceaccount:elsewhere:tfjob-controller" in without_names


def comparable(objects: list[Object]) -> dict[Key, Object]:
    """Returns the objects by kind, namespace and name, without the differences that are meant to be."""
    found = {}
    for each in map(without_differences, objects):
        if each["kind"] != "Namespace":  # helm --create-namespace
            meta = each["metadata"]
            found[each["kind"], meta.get("namespace", ""), meta["name"]] = each
    assert len(found) == sum(each["kind"] != "Namespace" for each in objects)
    return found


def without_differences(given: Object) -> Object:
    each = copy.deepcopy(given)
    meta = each["metadata"]
    meta["labels"] = {key: value for key, value in meta.get("labels", {}).items() if key not in HELM_LABELS}
    meta["annotations"] = {
        key: value for key, value in meta.get("annotations", {}).items() if key not in HELM_ANNOTATIONS
    }
    if each["kind"] in CLUSTER_WIDE:
        meta.pop("namespace", None)  # kustomize gives one to policies, which the API server drops
    match each["kind"]:
        case "ConfigMap":
            meta["name"] = CONFIG_MAP_HASH.sub("", meta["name"])
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
        case "Deployment":
            without_hashes(each["spec"]["template"])
    return each


def is_for_users(given: Object) -> bool:
    """Whether it is a role that only one release of a cluster has: `userRoles.install`."""
    return any("aggregate-to" in label for label in given["metadata"].get("labels", {}))


def without_hashes(template: Object) -> None:
    """kustomize puts the hash of a ConfigMap into its name, the chart into an annotation of the pods."""
    if CHECKSUM in (annotations := template["metadata"].get("annotations", {})):
        del annotations[CHECKSUM]
        if not annotations:
            del template["metadata"]["annotations"]
    for volume in template["spec"].get("volumes", ()):
        if "configMap" in volume:
            volume["configMap"]["name"] = CONFIG_MAP_HASH.sub("", volume["configMap"]["name"])
