"""The CustomResourceDefinition of TFJob."""

from __future__ import annotations

from typing import Any

import yaml

from generate.podtemplate import pod_template_schema
from generate.rules import REPLICA_SPEC_RULES, SPEC_RULES
from generate.schema import Extras, Schema, schema_of
from tfjob_controller.api.tfjob import TFJOBS, TFJobSpec, TFJobStatus

HEADER = "# Generated from src/tfjob_controller/api/tfjob.py by `make generate`.\n"


def _keyed(key: str) -> Schema:
    """A list whose items are known by one of their fields, which no two share."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


EXTRAS = Extras(
    of_type={
        "TFJobSpec": {"required": ["replicaSpecs"], "x-kubernetes-validations": SPEC_RULES},
        "ReplicaSpec": {"x-kubernetes-validations": REPLICA_SPEC_RULES},
    },
    of_field={
        ("TFJobSpec", "replica_specs"): _keyed("tfReplicaType"),
        ("TFJobStatus", "conditions"): _keyed("type"),
        ("ReplicaSpec", "template"): pod_template_schema(),
    },
)

_COLUMNS = (
    ("Phase", ".status.phase", "What the job does now.", False),
    ("State", ".status.state", "The chief's state.", False),
    ("Masters", ".status.ready.master", "Masters that are ready or succeeded, of those wanted.", False),
    ("Workers", ".status.ready.worker", "Workers that are ready or succeeded, of those wanted.", False),
    ("PS", ".status.ready.ps", "Parameter servers that are ready or succeeded, of those wanted.", False),
    ("Runtime-Id", ".spec.RuntimeId", "The characters in the names of all children.", True),
    ("Reason", ".status.reason", "Why.", True),
)


def render_crd() -> str:
    """The manifest as YAML text."""
    return HEADER + yaml.dump(tfjob_crd(), sort_keys=False, width=120, Dumper=_Dumper, allow_unicode=True)


def tfjob_crd() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{TFJOBS.plural}.{TFJOBS.group}"},
        "spec": {
            "group": TFJOBS.group,
            "scope": "Namespaced",
            "names": {
                "kind": TFJOBS.kind,
                "listKind": f"{TFJOBS.kind}List",
                "plural": TFJOBS.plural,
                "singular": TFJOBS.kind.lower(),
                "shortNames": ["tfj"],
                "categories": ["kubeflow"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": TFJOBS.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [*(_column(*each) for each in _COLUMNS), _AGE],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workerReplicas",
                "statusReplicasPath": ".status.workerReplicas",
                "labelSelectorPath": ".status.workerSelector",
            },
        },
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> Schema:
    return {
        "description": "A distributed TensorFlow job: replicas that know each other's addresses and end together.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": "kubeflow.org/v1alpha1.", "type": "string"},
            "kind": {"description": "TFJob.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": {"description": "What the user asks for.", **schema_of(TFJobSpec, EXTRAS)},
            "status": {"description": "What the controller says of the job.", **schema_of(TFJobStatus, EXTRAS)},
        },
    }


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _column(name: str, path: str, description: str, wide: bool) -> dict[str, Any]:
    column = {"name": name, "type": "string", "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


class _Dumper(yaml.SafeDumper):
    """Writes values out each time, without YAML's anchors, and indents lists as kubectl does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
