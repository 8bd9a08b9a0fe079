"""Where the chart's values and the release's namespace go in the manifests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from helmchart.tree import (
    INCLUDE,
    Alternatives,
    Block,
    Condition,
    Manifest,
    Template,
    Tree,
    override,
    possible,
)
from helmchart.values import Defaults

# The namespaces that the manifests name: that of the programs, and in overlays/namespaced that of the jobs.
SYSTEM = "tfjob-system"
RELEASE_NAMESPACE = Template("{{ .Release.Namespace }}", quoted=True)
WATCHED_NAMESPACE = Template("{{ .Values.watchNamespace }}", quoted=True)
# kustomize gives the policies a namespace, which the API server drops.
CLUSTER_WIDE = frozenset(
    (
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrainingRuntime",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    )
)
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
POLICIES_ENABLED = Condition(".Values.admissionPolicies.enabled")
# The value of each Deployment.
PREFIXES = {"tfjob-controller": "controller", "gang-scheduler": "gangScheduler", "tfjob-dashboard": "dashboard"}
# What kustomize's `images` replaces.
_IMAGES = {"tfjob-controller": ".Values.image", "kube-scheduler": ".Values.gangScheduler.kubeScheduler.image"}
_CONTROLLER_CONFIG = "tfjob-controller-config"
_CONFIG_FILE = "controller-config.yaml"
# Here the string is a name, not a namespace.
_NAMES = ("name", "priorityClassName")


def in_namespace(manifest: Manifest, namespace: Template = RELEASE_NAMESPACE) -> Manifest:
    """Returns the object in a namespace, unless it is cluster-scoped or already names one."""
    if manifest.kind in CLUSTER_WIDE:
        return manifest
    metadata = dict(manifest.tree["metadata"])
    if metadata.get("namespace", SYSTEM) == SYSTEM:
        metadata["namespace"] = namespace
    return replace(manifest, tree={**manifest.tree, "metadata": metadata})


def with_release_namespace(manifest: Manifest) -> Manifest:
    """Returns the object with the release's namespace wherever it names that of the manifests."""
    return replace(manifest, tree=_renamed(manifest.tree))


def _renamed(value: Tree, key: str = "") -> Tree:
    match value:
        case dict():
            return {name: _renamed(each, name) for name, each in value.items()}
        case list():
            return [_renamed(each) for each in value]
        case Alternatives():
            cases = tuple((condition, _renamed(each, key)) for condition, each in value.cases)
            return Alternatives(cases, _renamed(value.default, key))
        case str() if SYSTEM in value and key not in _NAMES:
            return Template(value.replace(SYSTEM, RELEASE_NAMESPACE.text), quoted=True)
        case _:
            return value


def with_unique_name(manifest: Manifest) -> Manifest:
    """Returns a cluster-scoped object whose name, with `watchNamespace`, ends in the namespace of the release.

    Several releases can then be in one cluster. References to such objects are changed as well.
    """
    tree = copy.deepcopy(manifest.tree)
    if manifest.kind in CLUSTER_WIDE:
        _add_suffix(tree["metadata"], "name")
    if tree.get("roleRef", {}).get("kind") == "ClusterRole":
        _add_suffix(tree["roleRef"], "name")
    if manifest.kind == "ValidatingAdmissionPolicyBinding":
        _add_suffix(tree["spec"], "policyName")
    return replace(manifest, tree=tree)


def _add_suffix(place: dict[str, Tree], key: str) -> None:
    if isinstance(name := place[key], Alternatives):
        place[key] = Alternatives(tuple((condition, _suffixed(each)) for condition, each in name.cases), name.default)
    else:
        place[key] = _suffixed(name)


def _suffixed(name: str) -> Template:
    return Template(f'{name}{{{{ include "tfjob-controller.suffix" . }}}}')


def with_labels(manifest: Manifest) -> Manifest:
    """Returns the object with the labels that Helm's users expect, which no selector uses."""
    labels = {**manifest.labels, INCLUDE: Block('include "tfjob-controller.labels" .')}
    return replace(manifest, tree={**manifest.tree, "metadata": {**manifest.tree["metadata"], "labels": labels}})


def with_switch(manifest: Manifest) -> Manifest:
    """Returns an admission policy under the condition of its value."""
    if manifest.kind not in _POLICIES:
        return manifest
    return replace(manifest, conditions=(*manifest.conditions, POLICIES_ENABLED))


def with_config(manifest: Manifest) -> Manifest:
    """Returns the ConfigMap of the controller with the value `config` as its file."""
    if (manifest.kind, manifest.name) != ("ConfigMap", _CONTROLLER_CONFIG):
        return manifest
    return replace(manifest, tree={**manifest.tree, "data": {_CONFIG_FILE: Block("toYaml .Values.config", lines=True)}})


def with_pod_values(manifest: Manifest, checksums: dict[str, Tree]) -> Manifest:
    """Returns a Deployment with its values. `checksums` are annotations of pods, by the name of the Deployment."""
    if manifest.kind != "Deployment":
        return manifest
    prefix = f".Values.{PREFIXES[manifest.name]}"
    tree = copy.deepcopy(manifest.tree)
    if manifest.name != "tfjob-dashboard":  # its sessions are in the memory of one process
        unset = Condition(f'kindIs "invalid" {prefix}.replicas')
        given = Template(f"{{{{ {prefix}.replicas | int }}}}")
        tree["spec"]["replicas"] = override(tree["spec"]["replicas"], unset.negated(), given)
    template = tree["spec"]["template"]
    template["metadata"]["labels"][INCLUDE] = _if_set(f"{prefix}.podLabels")
    annotations = checksums.get(manifest.name, {})
    annotations = {**annotations, INCLUDE: _if_set(f"{prefix}.podAnnotations")}
    template["metadata"]["annotations"] = annotations if len(annotations) > 1 else _if_set(f"{prefix}.podAnnotations")
    _set_pod(template["spec"], prefix)
    return replace(manifest, tree=tree)


def _if_set(value: str) -> Alternatives:
    return Alternatives(((Condition(value), Block(f"toYaml {value}")),))


def _set_pod(spec: dict[str, Tree], prefix: str) -> None:
    spec["imagePullSecrets"] = _if_set(".Values.imagePullSecrets")
    spec["nodeSelector"] = _if_set(f"{prefix}.nodeSelector")
    spec["tolerations"] = _if_set(f"{prefix}.tolerations")
    affinity = Condition(f"{prefix}.affinity"), Block(f"toYaml {prefix}.affinity")
    spec["affinity"] = override(spec["affinity"], *affinity) if "affinity" in spec else Alternatives((affinity,))
    if "priorityClassName" in spec:
        _add_suffix(spec, "priorityClassName")
    for each in _containers(spec):
        _set_container(each, prefix)
    for volume in (each for choice in possible(spec.get("volumes", [])) for each in choice):
        if volume.get("secret", {}).get("secretName") == "tfjob-dashboard-tls":
            volume["secret"]["secretName"] = Template("{{ .Values.dashboard.tlsSecretName }}", quoted=True)


def _containers(spec: dict[str, Tree]) -> Iterator[dict[str, Any]]:
    for item in spec["containers"]:
        yield from possible(item)


def _set_container(container: dict[str, Any], prefix: str) -> None:
    image = container["image"]
    container["image"] = Template(f'{{{{ include "tfjob-controller.{image}-image" . }}}}', quoted=False)
    container["imagePullPolicy"] = Template("{{ .Values.image.pullPolicy }}")
    if image == "kube-scheduler":
        container["resources"] = Block(f"toYaml {prefix}.kubeScheduler.resources")
        (limit,) = [each for each in container["env"] if each["name"] == "GOMEMLIMIT"]
        limit["value"] = Template(f"{{{{ {prefix}.kubeScheduler.memoryLimit }}}}", quoted=True)
        return
    container["resources"] = Block(f"toYaml {prefix}.resources")
    for arguments in possible(container["args"]):
        arguments[:] = [_hosts(each) for each in arguments]
        arguments.append(_if_set(f"{prefix}.extraArgs"))
    _add_environment(container, f"{prefix}.extraEnv")


def _hosts(argument: Tree) -> Tree:
    if not isinstance(argument, str) or not argument.startswith("--hosts="):
        return argument
    text = argument.replace(SYSTEM, RELEASE_NAMESPACE.text)
    return Template(text + "{{ range .Values.dashboard.hosts }},{{ . }}{{ end }}", quoted=True)


def _add_environment(container: dict[str, Any], value: str) -> None:
    """Adds the variables of the value to those that may be there."""
    present = container.pop("env", None)
    if present is None:
        container["env"] = _if_set(value)
    elif isinstance(present, Alternatives):
        ((condition, variables),) = present.cases
        either = Condition(f"or ({condition.text()}) {value}")
        splice = [Alternatives(((condition, each),)) for each in variables]
        container["env"] = Alternatives(((either, [*splice, _if_set(value)]),))
    else:
        container["env"] = [*present, _if_set(value)]


def defaults_of(manifests: list[Manifest], config: dict[str, Any]) -> Defaults:
    """Returns what the Deployments have before values are inserted."""
    resources: dict[str, Any] = {}
    memory_limit = ""
    for manifest in manifests:
        if manifest.kind == "Deployment":
            for each in _containers(manifest.tree["spec"]["template"]["spec"]):
                prefix = PREFIXES[manifest.name]
                if each["image"] == "kube-scheduler":
                    prefix += ".kubeScheduler"
                    (memory_limit,) = [one["value"] for one in each["env"] if one["name"] == "GOMEMLIMIT"]
                resources[prefix] = each["resources"]
    return Defaults(resources, config, memory_limit)
