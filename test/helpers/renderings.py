"""The shipped manifests as `kubectl kustomize` renders them, and the pods that their selectors select."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from localcluster.crds import documents

Object = dict[str, Any]

SYSTEM = "tfjob-system"
ANOTHER_NAMESPACE = MANIFESTS / "transformers" / "another-namespace"
# The namespace of jobs in overlays/namespaced.
JOBS = "default"
OVERLAYS = sorted(path.parent.name for path in (MANIFESTS / "overlays").glob("*/kustomization.yaml"))
# The overlays that contain only CRDs, of which a cluster has one; all others install programs.
CRDS_OVERLAY = "crds"
CRDS_OVERLAYS = (CRDS_OVERLAY, "crds-kubeflow-v1")
PROGRAMS = [each for each in OVERLAYS if each not in CRDS_OVERLAYS]
COMPONENTS = sorted(path.parent.name for path in (MANIFESTS / "components").glob("*/kustomization.yaml"))
# Kinds of other projects, which the tests' control plane does not serve.
_FOREIGN_GROUPS = ("monitoring.coreos.com/",)


def render(kubectl: Kubectl, folder: Path) -> list[Object]:
    return documents(kubectl.must("kustomize", str(folder)))


def render_overlay(kubectl: Kubectl, overlay: str) -> list[Object]:
    return render(kubectl, MANIFESTS / "overlays" / overlay)


def render_with(kubectl: Kubectl, folder: Path, overlay: str, *components: str) -> list[Object]:
    """Renders an overlay with components, from a kustomization in `folder` as a user would write it."""

    def relative(*parts: str) -> str:
        # kustomize accepts no absolute paths, and resolves symbolic links.
        return os.path.relpath(MANIFESTS.joinpath(*parts).resolve(), folder.resolve())

    text = {
        "namespace": SYSTEM,
        "resources": [relative("overlays", overlay)],
        "components": [relative("components", each) for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return render(kubectl, folder)


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def named(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Returns the object of that name; a ConfigMap's name may end in a hash."""
    is_it = re.compile(re.escape(name) + ("(-[a-z0-9]{10})?" if kind == "ConfigMap" else "")).fullmatch
    (found,) = [each for each in objects if each["kind"] == kind and is_it(each["metadata"]["name"])]
    return found


def our_own(objects: Iterable[Object]) -> list[Object]:
    """Returns the objects whose kind belongs to Kubernetes or to this project."""
    return [each for each in objects if not each["apiVersion"].startswith(_FOREIGN_GROUPS)]


def moved(objects: Iterable[Object], namespace: str) -> str:
    """Returns the objects as one List, with namespaced ones moved to this namespace: the cluster may be a user's."""
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return re.sub(f'"namespace": "({SYSTEM}|{JOBS})"', f'"namespace": "{namespace}"', whole)


def template_of(deployment: Object) -> Object:
    template: Object = deployment["spec"]["template"]
    return template


def containers_of(deployment: Object) -> list[Object]:
    found: list[Object] = template_of(deployment)["spec"]["containers"]
    return found


def environment_of(container: Object) -> dict[str, str]:
    """Returns the variables of a container in a pod of the namespace `SYSTEM`."""
    return {entry["name"]: SYSTEM if "valueFrom" in entry else entry["value"] for entry in container.get("env", ())}


def arguments_of(container: Object) -> list[str]:
    """Returns the arguments as the kubelet passes them, with variables replaced."""
    variables = environment_of(container)
    return [re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], argument) for argument in container["args"]]


def port_names(deployment: Object) -> set[str]:
    return {port["name"] for each in containers_of(deployment) for port in each["ports"]}


def selects(selector: Object, deployment: Object) -> bool:
    """Whether a label selector selects the pods of a Deployment; an empty one selects all, as in the API."""
    labels = template_of(deployment)["metadata"]["labels"]
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        _fulfils(each, labels) for each in selector.get("matchExpressions", ())
    )


def _fulfils(expression: Object, labels: Object) -> bool:
    assert expression["operator"] == "In", "no manifest uses another operator so far"
    return labels.get(expression["key"]) in expression["values"]


def own_selectors(deployment: Object) -> Iterator[Object]:
    """Returns a Deployment's selectors of its own pods: its own, and those of topology spread and anti-affinity."""
    spec = template_of(deployment)["spec"]
    yield deployment["spec"]["selector"]
    for each in spec.get("topologySpreadConstraints", ()):
        yield each["labelSelector"]
    terms = spec.get("affinity", {}).get("podAntiAffinity", {})
    for term in terms.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
        yield term["podAffinityTerm"]["labelSelector"]
