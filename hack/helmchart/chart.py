"""The files of the chart, from the same manifests as the overlays.

The base is merged with the overlay `namespaced`, and each component becomes a condition. Written by hand, in the folder
of the chart, are only `_helpers.tpl`, `checks.yaml` and `NOTES.txt`.
"""

from __future__ import annotations

import configparser
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from helmchart import places
from helmchart.emit import escaped, header, template_file
from helmchart.kustomize import Sources, add_component, build
from helmchart.merge import merged
from helmchart.readme import render_readme
from helmchart.tree import Condition, Manifest, Template, Tree
from helmchart.values import Defaults, render_schema, render_values, values
from localcluster.kubernetesversions import known_minors

CHART = "manifests/helm/tfjob-controller"
NAMESPACED = Condition(".Values.watchNamespace")
GANG_SCHEDULER = Condition(".Values.gangScheduler.enabled")
RUNTIMES = Condition(".Values.runtimes.install")
USER_ROLES = Condition('include "tfjob-controller.userRoles" .')
# In the order in which they are added; each changes what the ones before have added.
COMPONENTS: Mapping[str, Condition] = {
    "gang-affinity": Condition('and .Values.gangScheduler.enabled (eq .Values.gangScheduler.mode "affinity")'),
    "gang-backend-volcano": Condition('eq .Values.gangBackend "volcano"'),
    "gang-backend-coscheduling": Condition('eq .Values.gangBackend "coscheduling"'),
    "gang-backend-kubernetes": Condition('eq .Values.gangBackend "kubernetes"'),
    "gang-backend-kueue": Condition('eq .Values.gangBackend "kueue"'),
    "node-autoscaler": Condition("and .Values.gangScheduler.enabled .Values.gangScheduler.nodeAutoscaler.enabled"),
    "high-availability": Condition(".Values.highAvailability.enabled"),
    "network-policies": Condition(".Values.networkPolicies.enabled"),
    "priority-class": Condition(".Values.priorityClass.enabled"),
    "monitoring": Condition(".Values.monitoring.enabled"),
    "dashboard": Condition(".Values.dashboard.enabled"),
    "kubeflow-trainer": Condition(".Values.kubeflowTrainer.enabled"),
    "progress-server": Condition(".Values.progressServer.enabled"),
}
_BASE, _CRDS, _JOBS = "manifests/base", "manifests/base/crds", "manifests/overlays/namespaced/jobs"
_KEEP = {"helm.sh/resource-policy": "keep"}
# The fields of a manifest's metadata that the text of a CRD begins with.
_CRD_NAME = re.compile(r"^metadata:\n  name: .*\n", re.MULTILINE)


def files(root: Path, generated: Mapping[str, str]) -> dict[str, str]:
    """Returns the generated files of the chart: path from the project's root → text.

    `generated` has the text of the manifests that are generated at the same time.
    """
    sources = Sources(root, generated)
    manifests = _manifests(sources)
    defaults = places.defaults_of(manifests, yaml.safe_load(sources.text(f"{_BASE}/manager/controller-config.yaml")))
    found = values(defaults)
    inside = {
        "Chart.yaml": _chart(root),
        "values.yaml": render_values(found),
        "values.schema.json": render_schema(found),
        "README.md": render_readme(found),
        **{f"templates/{name}": text for name, text in _templates(_placed(manifests)).items()},
        **{f"templates/{name}": text for name, text in _crds(sources).items()},
    }
    return {f"{CHART}/{name}": text for name, text in inside.items()}


def all_defaults(root: Path) -> Defaults:
    """Returns the defaults that the values have."""
    sources = Sources(root, {})
    config = yaml.safe_load(sources.text(f"{_BASE}/manager/controller-config.yaml"))
    return places.defaults_of(_manifests(sources), config)


def _manifests(sources: Sources) -> list[Manifest]:
    """Returns all objects that the chart can contain, as conditions of its values."""
    usual = [places.in_namespace(each) for each in build(sources, _BASE)]
    system = [places.in_namespace(each) for each in build(sources, posixpath.dirname(_JOBS) + "/system")]
    jobs = [places.in_namespace(each, places.WATCHED_NAMESPACE) for each in build(sources, _JOBS)]
    namespaced = [*map(_watching, system), *jobs]
    gang = [replace(each, conditions=(GANG_SCHEDULER,)) for each in build(sources, f"{_BASE}/extender")]
    found = [*merged(usual, namespaced, NAMESPACED), *gang]
    for name, condition in COMPONENTS.items():
        found = add_component(found, sources, f"manifests/components/{name}", condition)
    return [*found, *map(_kept_runtime, build(sources, f"{_BASE}/runtimes"))]


def _watching(manifest: Manifest) -> Manifest:
    """The overlay sets this variable by a replacement."""
    if manifest.kind == "Deployment":
        (container,) = manifest.tree["spec"]["template"]["spec"]["containers"]
        (variable,) = container["env"]
        variable["value"] = places.WATCHED_NAMESPACE
    return manifest


def _kept_runtime(manifest: Manifest) -> Manifest:
    """Running TrainJobs need their runtime."""
    metadata = {**manifest.tree["metadata"], "annotations": _KEEP}
    return replace(manifest, tree={**manifest.tree, "metadata": metadata}, conditions=(RUNTIMES,))


def _placed(manifests: list[Manifest]) -> list[Manifest]:
    checksums = {
        "tfjob-controller": {"checksum/config": Template("{{ toYaml .Values.config | sha256sum }}")},
        "gang-scheduler": {"checksum/config": _checksum(manifests, "gang-scheduler-config")},
    }
    result = []
    for each in manifests:
        placed = places.with_config(places.with_pod_values(places.in_namespace(each), checksums))
        if _can_be_twice(placed):
            placed = places.with_unique_name(placed)
        placed = places.with_release_namespace(places.with_switch(_for_users(placed)))
        result.append(places.with_labels(placed))
    return result


def _can_be_twice(manifest: Manifest) -> bool:
    """Whether several releases of a cluster can have this object."""
    single = {NAMESPACED.negated(), GANG_SCHEDULER, RUNTIMES}
    return not single & set(manifest.conditions)


def _for_users(manifest: Manifest) -> Manifest:
    """Roles that are added to those of the cluster have a value of their own."""
    if not any("aggregate-to" in label for label in manifest.labels):
        return manifest
    others = tuple(each for each in manifest.conditions if each != NAMESPACED.negated())
    return replace(manifest, conditions=(USER_ROLES, *others))


def _checksum(manifests: list[Manifest], name: str) -> str:
    (text,) = [each.tree["data"] for each in manifests if (each.kind, each.name) == ("ConfigMap", name)]
    return hashlib.sha256(repr(sorted(text.items())).encode()).hexdigest()


def _templates(manifests: list[Manifest]) -> dict[str, str]:
    """One template for each folder of manifests."""
    folders: dict[str, list[Manifest]] = {}
    for each in manifests:
        folders.setdefault(each.source, []).append(each)
    return {f"{posixpath.basename(folder)}.yaml": template_file(folder, found) for folder, found in folders.items()}


def _crds(sources: Sources) -> dict[str, str]:
    """CRDs as templates: Helm never upgrades what is in the folder crds/ of a chart."""
    _, content = sources.kustomization(_CRDS)
    return {f"crds/{name}": _crd(sources.text(f"{_CRDS}/{name}"), f"{_CRDS}/{name}") for name in content["resources"]}


def _crd(text: str, path: str) -> str:
    _, _, body = text.partition("\n")  # the first line says what generated it
    (name,) = (match[0] for match in _CRD_NAME.finditer(body))
    before, _, after = body.partition(name)
    labels = "\n".join(
        [
            "  labels:",
            "    app.kubernetes.io/name: tfjob-controller",
            "    app.kubernetes.io/part-of: kubeflow",
            '    {{- include "tfjob-controller.labels" . | nindent 4 }}',
            "  {{- if .Values.crds.keep }}",
            "  annotations:",
            "    helm.sh/resource-policy: keep",
            "  {{- end }}",
            "",
        ]
    )
    head = [header(path), "{{- if .Values.crds.install }}", "---", ""]
    return "\n".join(head) + escaped(before) + name + labels + escaped(after) + "{{- end }}\n"


def _chart(root: Path) -> str:
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    metadata = setup["metadata"]
    content: dict[str, Tree] = {
        "apiVersion": "v2",
        "name": metadata["name"],
        "description": metadata["description"],
        "type": "application",
        "version": metadata["version"],
        "appVersion": metadata["version"],
        "kubeVersion": f">={known_minors()[0]}.0-0",
        "keywords": ["kubeflow", "tensorflow", "pytorch", "training", "gang-scheduling"],
    }
    return "# Generated from setup.cfg by `make generate`.\n" + yaml.safe_dump(content, sort_keys=False, width=120)
