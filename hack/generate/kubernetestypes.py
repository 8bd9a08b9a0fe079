"""The types of Kubernetes' API that occur inside custom resources, as its API server publishes them.

`kubernetestypes.yaml` has the fields of `PodTemplateSpec` (core/v1) and `MetricSpec` (autoscaling/v2) and of all types
below them, without descriptions. test/integration/test_crd.py compares it with the API server of the default version
of Kubernetes. To record another version:

    for api in api/v1 apis/autoscaling/v2; do kubectl get --raw /openapi/v3/$api; done |
        PYTHONPATH=src:hack python -m generate.kubernetestypes
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from generate.schema import INT_OR_STRING, Schema

ROOTS = ("PodTemplateSpec", "MetricSpec")
# A Job cannot have ephemeral containers, and only API servers write managedFields.
_LEFT_OUT = ("ephemeralContainers", "managedFields")
# Longer lists of values, such as that of all signals, are left to Kubernetes.
_MAX_VALUES = 10
# Values that the document does not list (pkg/apis/core/validation/validation.go): those of a container in 1.36.
_UNLISTED = {("Container", "restartPolicy"): "Always|Never|OnFailure"}
_PATH = Path(__file__).with_suffix(".yaml")

# The fields of each type. The type of a field is one of `SCALARS`, the strings that it may have, such as "TCP|UDP", the
# name of another type, a list such as "[Volume]" or a map such as "{Quantity}". The name of a required field ends in
# "*".
Types = Mapping[str, Mapping[str, str]]

# The text form of resource.Quantity, without its sign.
QUANTITY = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"

SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "IntOrString": INT_OR_STRING,
    "Quantity": INT_OR_STRING | {"pattern": f"^[+-]?{QUANTITY}$", "maxLength": 64},
    "Time": {"type": "string", "format": "date-time"},
}


@cache
def recorded() -> Types:
    """Returns the recorded types."""
    types: Types = yaml.safe_load(_PATH.read_text(encoding="utf-8"))
    return types


def types_in(documents: Iterable[Mapping[str, Any]]) -> Types:
    """Returns the types below `ROOTS` from the API server's OpenAPI documents."""
    schemas = {
        _kind(name): schema for document in documents for name, schema in document["components"]["schemas"].items()
    }
    types: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        kind = waiting.pop()
        if kind not in types:
            types[kind] = _fields(kind, schemas[kind])
            waiting += [name for name in map(_inner, types[kind].values()) if name in schemas and name not in SCALARS]
    return dict(sorted(types.items()))


def _fields(kind: str, schema: Schema) -> dict[str, str]:
    required = schema.get("required", ())
    kept = {name: field for name, field in schema["properties"].items() if name not in _LEFT_OUT}
    return {
        f"{name}*" if name in required else name: _UNLISTED.get((kind, name)) or _type(field)
        for name, field in sorted(kept.items())
    }


def _type(schema: Schema) -> str:
    if "$ref" in schema or "allOf" in schema:
        return _kind((schema.get("allOf") or [schema])[0]["$ref"])
    if 1 < len(schema.get("enum", ())) <= _MAX_VALUES:
        return "|".join(sorted(schema["enum"]))
    if schema["type"] == "array":
        return f"[{_type(schema['items'])}]"
    if schema["type"] == "object":
        return f"{{{_type(schema['additionalProperties'])}}}"
    return str(schema.get("format") or schema["type"])


def _kind(reference: str) -> str:
    return reference.rsplit(".", 1)[-1].rsplit("/", 1)[-1]


def _inner(type_name: str) -> str:
    return type_name.strip("[]{}")


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON documents that follow one another in a text."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:].lstrip()


if __name__ == "__main__":
    _PATH.write_text(yaml.safe_dump(dict(types_in(_documents(sys.stdin.read()))), width=120), encoding="utf-8")
