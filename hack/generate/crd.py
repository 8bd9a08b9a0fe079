"""The CustomResourceDefinitions: one table of kinds, and how a row becomes a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from generate.podtemplate import pod_template_schema
from generate.rules import GANG_SPEC_RULES, PROGRESS_RULES, REPLICA_SPEC_RULES, SPEC_RULES
from generate.schema import Extras, Schema, schema_of
from tfjob_controller.api.gang import GANGS, MAX_KINDS, MAX_MEMBERS, GangSpec, GangStatus
from tfjob_controller.api.tfjob import TFJOBS, TFJobSpec
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.names import MAX_LABEL

# name, path, description, only with `-o wide`, type
Column = tuple[str, str, str, bool, str]


@dataclass(frozen=True, slots=True)
class CustomKind:
    """One kind. `source` is the file that its fields are described in; `asks` and `says` describe spec and status."""

    resource: Resource
    source: str
    description: str
    short_name: str
    spec: type[msgspec.Struct]
    asks: str
    status: type[msgspec.Struct]
    says: str
    columns: tuple[Column, ...]
    extras: Extras
    categories: tuple[str, ...] = ()
    metadata: Schema = field(default_factory=lambda: {"type": "object"})
    subresources: Mapping[str, Any] = field(default_factory=dict)


def _keyed(key: str) -> Schema:
    """A list whose items are known by one of their fields, which no two share."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


TFJOB = CustomKind(
    TFJOBS,
    source="src/tfjob_controller/api/tfjob.py",
    description="A distributed TensorFlow job: replicas that know each other's addresses and end together.",
    short_name="tfj",
    spec=TFJobSpec,
    asks="What the user asks for.",
    status=TrainingStatus,
    says="What the controller says of the job.",
    columns=(
        ("Phase", ".status.phase", "What the job does now.", False, "string"),
        ("State", ".status.state", "The chief's state.", False, "string"),
        ("Masters", ".status.ready.master", "Masters that are ready or succeeded, of those wanted.", False, "string"),
        ("Workers", ".status.ready.worker", "Workers that are ready or succeeded, of those wanted.", False, "string"),
        ("PS", ".status.ready.ps", "Parameter servers that are ready or succeeded, of those wanted.", False, "string"),
        ("Runtime-Id", ".spec.RuntimeId", "The characters in the names of all children.", True, "string"),
        ("Reason", ".status.reason", "Why.", True, "string"),
    ),
    extras=Extras(
        of_type={
            "TFJobSpec": {"required": ["replicaSpecs"], "x-kubernetes-validations": SPEC_RULES},
            "ReplicaSpec": {"x-kubernetes-validations": REPLICA_SPEC_RULES},
            "ProgressSource": {"x-kubernetes-validations": PROGRESS_RULES},
        },
        of_field={
            ("TFJobSpec", "replica_specs"): _keyed("tfReplicaType"),
            ("TrainingStatus", "conditions"): _keyed("type"),
            ("ReplicaSpec", "template"): pod_template_schema(),
        },
    ),
    categories=("kubeflow",),
    subresources={
        "scale": {
            "specReplicasPath": ".spec.workerReplicas",
            "statusReplicasPath": ".status.workerReplicas",
            "labelSelectorPath": ".status.workerSelector",
        },
    },
)

_OPEN = {"x-kubernetes-preserve-unknown-fields": True}
# A quantity as resource.Quantity reads it, but for a sign: nobody requests less than nothing.
_QUANTITY = {
    "type": "string",
    "maxLength": 64,
    "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
}
_COUNT_BY_MEMBER = {
    "maxProperties": MAX_KINDS,
    "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": MAX_MEMBERS},
}
_LABEL = {"description": "The value of a label of its pods.", "type": "string", "maxLength": MAX_LABEL}

GANG = CustomKind(
    GANGS,
    source="src/tfjob_controller/api/gang.py",
    description="Pods that run all together or not at all. Whoever owns it creates them once it is admitted.",
    short_name="gg",
    spec=GangSpec,
    asks="What must run together, and how long it may wait.",
    status=GangStatus,
    says="What the gang scheduler says.",
    columns=(
        ("Phase", ".status.phase", "What the gang scheduler does with it.", False, "string"),
        ("Members", ".status.members", "Pods that have a node, of all.", False, "string"),
        ("Priority", ".spec.priority", "Higher ones come first.", False, "integer"),
        ("Position", ".status.position", "Place in the queue.", False, "integer"),
        ("Message", ".status.message", "What it lacks.", False, "string"),
    ),
    extras=Extras(
        of_type={"GangSpec": {"required": ["members"], "x-kubernetes-validations": GANG_SPEC_RULES}},
        of_field={
            ("GangSpec", "members"): _keyed("name"),
            ("GangSpec", "min_members"): _COUNT_BY_MEMBER,
            ("GangSpec", "max_members"): _COUNT_BY_MEMBER,
            ("Member", "resources"): {"additionalProperties": _QUANTITY},
            ("Member", "tolerations"): {"items": {"type": "object", **_OPEN}},
            ("Member", "node_affinity"): _OPEN,
            ("GangStatus", "placement"): _keyed("node"),
            ("GangStatus", "missing"): _keyed("resource"),
            ("GangStatus", "conditions"): _keyed("type"),
        },
    ),
    metadata={"type": "object", "properties": {"name": _LABEL}},
)

KINDS = (TFJOB, GANG)


def render_crd(kind: CustomKind) -> str:
    """The manifest as YAML text."""
    header = f"# Generated from {kind.source} by `make generate`.\n"
    return header + yaml.dump(crd_of(kind), sort_keys=False, width=120, Dumper=_Dumper, allow_unicode=True)


def crd_of(kind: CustomKind) -> dict[str, Any]:
    resource = kind.resource
    categories = {"categories": list(kind.categories)} if kind.categories else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
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
    return {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [*(_column(*each) for each in kind.columns), _AGE],
        "subresources": {"status": {}, **kind.subresources},
        "schema": {"openAPIV3Schema": _root(kind)},
    }


def _root(kind: CustomKind) -> Schema:
    return {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{kind.resource.api_version}.", "type": "string"},
            "kind": {"description": f"{kind.resource.kind}.", "type": "string"},
            "metadata": kind.metadata,
            "spec": {"description": kind.asks, **schema_of(kind.spec, kind.extras)},
            "status": {"description": kind.says, **schema_of(kind.status, kind.extras)},
        },
    }


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _column(name: str, path: str, description: str, wide: bool, type_: str) -> dict[str, Any]:
    column = {"name": name, "type": type_, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


class _Dumper(yaml.SafeDumper):
    """Writes values out each time, without YAML's anchors, and indents lists as kubectl does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
