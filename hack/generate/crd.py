"""The CustomResourceDefinitions: the description of a kind, and the manifest that is generated from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from generate.schema import Extras, Schema, schema_of
from tfjob_controller.kube.meta import Object, Resource

# name, path, description, only with `-o wide`, type
Column = tuple[str, str, str, bool, str]


@dataclass(frozen=True, slots=True)
class CustomKind:
    """One kind. `source` is the file that describes its fields.

    `rules` are those that refer to spec and status together. A kind without `status` has no controller.
    """

    resource: Resource[Object]
    source: str
    description: str
    short_name: str
    spec: type[msgspec.Struct]
    spec_description: str
    columns: tuple[Column, ...]
    extras: Extras
    status: type[msgspec.Struct] | None = None
    status_description: str = ""
    rules: Sequence[Schema] = ()
    categories: tuple[str, ...] = ()
    metadata: Schema = field(default_factory=lambda: {"type": "object"})
    subresources: Mapping[str, Any] = field(default_factory=dict)


def render_crd(kind: CustomKind) -> str:
    """Returns the manifest as YAML text."""
    return render_manifest(crd_of(kind), kind.source)


def render_manifest(crd: Mapping[str, Any], source: str) -> str:
    """Returns a manifest that is generated from the file `source` as YAML text."""
    header = f"# Generated from {source} by `make generate`.\n"
    return header + yaml.dump(crd, sort_keys=False, width=120, Dumper=_Dumper, allow_unicode=True)


def crd_of(kind: CustomKind) -> dict[str, Any]:
    resource = kind.resource
    categories = {"categories": list(kind.categories)} if kind.categories else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [kind.short_name],
                **categories,
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: CustomKind) -> dict[str, Any]:
    subresources = {**({"status": {}} if kind.status else {}), **kind.subresources}
    return {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [*(_column(*column) for column in kind.columns), _AGE],
        **({"subresources": subresources} if subresources else {}),
        "schema": {"openAPIV3Schema": _root(kind)},
    }


def _root(kind: CustomKind) -> Schema:
    rules = {"x-kubernetes-validations": list(kind.rules)} if kind.rules else {}
    status = (
        {"status": {"description": kind.status_description, **schema_of(kind.status, kind.extras)}}
        if kind.status
        else {}
    )
    return {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{kind.resource.api_version}.", "type": "string"},
            "kind": {"description": f"{kind.resource.kind}.", "type": "string"},
            "metadata": kind.metadata,
            "spec": {"description": kind.spec_description, **schema_of(kind.spec, kind.extras)},
            **status,
        },
        **rules,
    }


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _column(name: str, path: str, description: str, wide: bool, type_: str) -> dict[str, Any]:
    column = {"name": name, "type": type_, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


class _Dumper(yaml.SafeDumper):
    """Repeats equal values instead of using YAML's anchors, indents lists as kubectl does, and folds scalars."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        is_small = "type" in mapping and all(
            isinstance(value, str | int) or name == "enum" for name, value in mapping.items()
        )
        return super().represent_mapping(
            tag, mapping, flow_style or (is_small and "description" not in mapping) or None
        )
