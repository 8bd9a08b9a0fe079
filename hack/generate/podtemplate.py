"""The schemas of pod templates, and of other parts of Kubernetes' own API, inside custom resources.

They have the types of `kubernetestypes`, so that the API server refuses the same misspelled fields and wrong types that
it refuses in a Deployment, and prunes fields that it does not know. As in a Deployment, null is an absent field, and so
is an empty string where one of a few values is expected.
"""

from __future__ import annotations

from collections.abc import Mapping

from generate.kubernetestypes import SCALARS, recorded
from generate.schema import Schema

MAX_CONTAINERS = 64

# Additions to the schemas of fields, by type and field.
Changes = Mapping[tuple[str, str], Schema]
_NONE: Changes = {}

_IN_TEMPLATES: Changes = {
    ("PodTemplateSpec", "metadata"): {"description": "Labels and annotations of the pods."},
    ("PodTemplateSpec", "spec"): {"description": "The pods' spec. `kubectl explain pod.spec` describes its fields."},
    # Rules iterate over containers, and the API server refuses rules whose cost has no bound.
    ("PodSpec", "containers"): {"maxItems": MAX_CONTAINERS},
}


def pod_template_schema(changes: Changes = _NONE) -> Schema:
    """Returns the schema of a PodTemplateSpec, whose spec may lack containers."""
    return kubernetes_schema("PodTemplateSpec", {**_IN_TEMPLATES, **changes})


def kubernetes_schema(kind: str, changes: Changes = _NONE) -> Schema:
    """Returns the schema of a type of Kubernetes' API with all types below it."""
    properties: dict[str, Schema] = {}
    required = []
    for name, of in recorded()[kind].items():
        field = name.rstrip("*")
        schema = _type(of, changes) | changes.get((kind, field), {})
        if name != field and (kind, field) != ("PodSpec", "containers"):
            required.append(field)
        elif "enum" not in schema:
            schema["nullable"] = True
        elif "enum" not in changes.get((kind, field), {}):
            schema["enum"] = list(dict.fromkeys(("", *schema["enum"])))
        properties[field] = schema
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _type(of: str, changes: Changes) -> Schema:
    if of.startswith("["):
        return {"type": "array", "items": _type(of[1:-1], changes)}
    if of.startswith("{"):
        return {"type": "object", "additionalProperties": _type(of[1:-1], changes)}
    if "|" in of:
        return {"type": "string", "enum": of.split("|")}
    return dict(SCALARS[of]) if of in SCALARS else kubernetes_schema(of, changes)
