"""Reads the kustomizations of manifests/, as far as they use kustomize.

`build` gives the objects of a folder as `kubectl kustomize` does, without namespaces, images, replacements and the
hashes in names of ConfigMaps: the chart has its own for these. `add_component` adds a component under a condition. A
test compares what the chart and the real kustomize render.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from helmchart import patches
from helmchart.tree import Condition, Manifest
from localcluster.crds import documents

Object = dict[str, Any]

_NAMES = ("kustomization.yaml", "Kustomization")
_KNOWN = {"apiVersion", "kind", "namespace", "resources", "labels", "configMapGenerator", "patches"}
# What the chart does in its own way: see `places`.
_IGNORED = {"images", "replacements"}


class KustomizeError(Exception):
    """A kustomization uses what this reader does not know."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of manifests/. `generated` has the text of those that are just being generated, by path."""

    root: Path
    generated: Mapping[str, str]

    def text(self, path: str) -> str:
        found = self.generated.get(path)
        return found if found is not None else (self.root / path).read_text("utf-8")

    def exists(self, path: str) -> bool:
        return path in self.generated or (self.root / path).is_file()

    def kustomization(self, folder: str) -> tuple[str, Object]:
        for name in _NAMES:
            if self.exists(path := f"{folder}/{name}"):
                content: Object = yaml.safe_load(self.text(path))
                if unknown := content.keys() - _KNOWN - _IGNORED - {"components"}:
                    raise KustomizeError(f"{path}: {', '.join(sorted(unknown))} is not supported by the chart")
                return path, content
        raise KustomizeError(f"{folder} has no kustomization")


def build(sources: Sources, folder: str) -> list[Manifest]:
    """Returns the objects of a base or an overlay without components."""
    path, content = sources.kustomization(folder)
    if "components" in content:
        raise KustomizeError(f"{path}: components are added by conditions")
    found = [*_resources(sources, folder, content), *_config_maps(sources, folder, content)]
    for patch in content.get("patches", ()):
        found = _patched(found, patch, None)
    for each in content.get("labels", ()):
        if each.get("includeSelectors", True):
            raise KustomizeError(f"{path}: labels in selectors are not supported")
        found = [_labelled(manifest, each["pairs"]) for manifest in found]
    return found


def add_component(manifests: Iterable[Manifest], sources: Sources, folder: str, condition: Condition) -> list[Manifest]:
    """Returns the objects with those of a component, and with its patches, while the condition holds."""
    _, content = sources.kustomization(folder)
    added = [*_resources(sources, folder, content), *_config_maps(sources, folder, content)]
    found = [*manifests, *(replace(each, conditions=(condition, *each.conditions)) for each in added)]
    for patch in content.get("patches", ()):
        found = _patched(found, patch, condition)
    return found


def _resources(sources: Sources, folder: str, content: Object) -> Iterator[Manifest]:
    for name in content.get("resources", ()):
        path = posixpath.normpath(f"{folder}/{name}")
        if sources.exists(path):
            yield from (Manifest(document, folder) for document in documents(sources.text(path)))
        else:
            yield from build(sources, path)


def _config_maps(sources: Sources, folder: str, content: Object) -> Iterator[Manifest]:
    for each in content.get("configMapGenerator", ()):
        labels = each.get("options", {}).get("labels")
        metadata = {"name": each["name"], **({"labels": labels} if labels else {})}
        data = {posixpath.basename(name): sources.text(f"{folder}/{name}") for name in each["files"]}
        yield Manifest({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, folder)


def _labelled(manifest: Manifest, pairs: Mapping[str, str]) -> Manifest:
    metadata = {**manifest.tree["metadata"], "labels": {**manifest.labels, **pairs}}
    return replace(manifest, tree={**manifest.tree, "metadata": metadata})


def _patched(manifests: list[Manifest], patch: Object, condition: Condition | None) -> list[Manifest]:
    content = yaml.safe_load(patch["patch"])
    result = []
    for each in manifests:
        if not _is_target(patch["target"], each):
            result.append(each)
        elif isinstance(content, list):
            result.append(replace(each, tree=patches.apply(each.tree, content, condition)))
        elif content.get("$patch") != "delete":
            raise KustomizeError(f"a patch of {each.kind} {each.name} is neither a JSON patch nor a deletion")
        elif condition is not None:
            result.append(replace(each, conditions=(*each.conditions, condition.negated())))
    return result


def _is_target(target: Mapping[str, str], manifest: Manifest) -> bool:
    if unknown := target.keys() - {"kind", "name", "labelSelector"}:
        raise KustomizeError(f"targets by {', '.join(unknown)} are not supported")
    return (
        re.fullmatch(target.get("kind", ".*"), manifest.kind) is not None
        and re.fullmatch(target.get("name", ".*"), manifest.name) is not None
        and _is_selected(target.get("labelSelector", ""), manifest.labels)
    )


def _is_selected(selector: str, labels: Mapping[str, Any]) -> bool:
    if not selector:
        return True
    match = re.fullmatch(r"([\w./-]+)(!?=)([\w.-]+)", selector)
    if match is None:
        raise KustomizeError(f"the selector {selector!r} is not supported")
    key, operator, value = match.groups()
    return (labels.get(key) == value) == (operator == "=")
