"""Structural schemas (apiextensions.k8s.io/v1) from msgspec types.

The types contain everything: names as on the wire, and descriptions, limits and defaults from
`api.common.schema.describe`. `Extras`, by type and by field, add what JSON Schema cannot express, such as rules and
list keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import inspect

from tfjob_controller.api.common.schema import PATTERN_MESSAGE

Schema = dict[str, Any]

_SCALARS: dict[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.BoolType: "boolean",
    inspect.FloatType: "number",
}


INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}


@dataclass(frozen=True, slots=True)
class Extras:
    """Additions to the schema of a type, by its class name, or of a field, by class and field name."""

    of_type: Mapping[str, Schema] = field(default_factory=dict)
    of_field: Mapping[tuple[str, str], Schema] = field(default_factory=dict)


def keyed(key: str) -> Schema:
    """Returns the schema of a list whose items are identified by one of their fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def schema_of(struct: type[msgspec.Struct], extras: Extras) -> Schema:
    """Returns the schema of a Struct with all nested ones."""
    return _struct(struct_info(struct), extras)


def struct_info(struct: type[msgspec.Struct]) -> inspect.StructType:
    info = inspect.type_info(struct)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{struct.__name__} is no Struct")
    return info


def _struct(info: inspect.StructType, extras: Extras) -> Schema:
    name = info.cls.__name__
    properties = {
        field_info.encode_name: _described(field_info, name)
        | _laid_over(_of(field_info.type, extras), extras.of_field, name, field_info.name)
        for field_info in info.fields
    }
    required = sorted(field_info.encode_name for field_info in info.fields if field_info.required)
    schema: Schema = {"type": "object", "properties": dict(sorted(properties.items()))}
    if required:
        schema["required"] = required
    return schema | extras.of_type.get(name, {})


def _laid_over(schema: Schema, extras: Mapping[tuple[str, str], Schema], struct: str, field_name: str) -> Schema:
    extra = extras.get((struct, field_name), {})
    # A map with known keys is an object.
    kept = {
        name: value for name, value in schema.items() if name != "additionalProperties" or "properties" not in extra
    }
    return kept | extra


def _described(field_info: inspect.Field, struct: str) -> Schema:
    if not isinstance(field_info.type, inspect.Metadata):
        raise TypeError(f"{struct}.{field_info.name} has no description: give it one with describe(…)")
    return {"description": (field_info.type.extra_json_schema or {})["description"]}


def _of(info: inspect.Type, extras: Extras) -> Schema:
    if isinstance(info, inspect.Metadata):
        return _of(info.type, extras) | _in_words(info.extra_json_schema or {})
    if isinstance(info, inspect.UnionType):
        return INT_OR_STRING if _is_int_or_string(info) else _of(_only(info), extras)
    if isinstance(info, inspect.StructType):
        return _struct(info, extras)
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return {"type": "array", "items": _of(info.item_type, extras)}
    if isinstance(info, inspect.DictType):
        return {"type": "object"} | _values(info.value_type, extras)
    return {"type": _SCALARS[type(info)]}


def _in_words(limits: Schema) -> Schema:
    """A pattern that has words for it becomes a rule: of a mere pattern, the API server shows nothing else."""
    if PATTERN_MESSAGE not in limits:
        return limits
    rule = {"rule": f"self.matches({json.dumps(limits['pattern'])})", "message": limits[PATTERN_MESSAGE]}
    kept = {name: value for name, value in limits.items() if name not in ("pattern", PATTERN_MESSAGE)}
    return kept | {"x-kubernetes-validations": [rule]}


def _values(info: inspect.Type, extras: Extras) -> Schema:
    return {} if isinstance(info, inspect.AnyType) else {"additionalProperties": _of(info, extras)}


def _is_int_or_string(union: inspect.UnionType) -> bool:
    types = [option for option in union.types if not isinstance(option, inspect.NoneType)]
    return {type(option) for option in types} == {inspect.IntType, inspect.StrType}


def _only(union: inspect.UnionType) -> inspect.Type:
    """`X | None` is an optional field, which a schema does not require."""
    (only,) = (option for option in union.types if not isinstance(option, inspect.NoneType))
    return only
