"""Fields, columns and conditions of a kind as tables of the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from generate.crd import CustomKind, crd_of
from generate.markdown import code, table
from generate.schema import Schema
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.jobs import reasons
from tfjob_controller.kinds import reasons as trainer

# Condition and status, with the reasons that it can have.
Conditions = Mapping[tuple[str, str], tuple[str, ...]]

# The part of a description with the meaning of an absent field.
_DEFAULT = re.compile(r" Default: (?P<value>[^.]*)\.")


def properties_of(kind: CustomKind) -> Schema:
    """The schemas of spec and status."""
    properties: Schema = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return properties


def column_table(kind: CustomKind) -> str:
    columns = crd_of(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    rows = ((column["name"], code(column["jsonPath"]), _width(column)) for column in columns)
    return table(["Column", "Shows", "Where"], rows)


def conditions_table(conditions: Conditions) -> str:
    rows = (
        (condition, status, code(reason), {**reasons.DESCRIPTIONS, **trainer.DESCRIPTIONS}[reason])
        for (condition, status), possible in conditions.items()
        for reason in possible
    )
    return table(["Condition", "Status", "Reason", "When"], rows)


def field_table(path: str, schema: Schema) -> str:
    rows = ((code(name), _type(field), _default(field), _meaning(field)) for name, field in _fields(path, schema))
    return table(["Field", "Type", "Default", "Meaning"], rows)


def _fields(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """All fields below that have a description, parents first; others are Kubernetes' own and described there."""
    for name, field in schema.get("properties", {}).items():
        if "description" not in field:
            continue
        inner = field.get("items", field)
        here = f"{path}.{name}[]" if "items" in field and any(_fields("", inner)) else f"{path}.{name}"
        yield here, field
        yield from _fields(here, inner)


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if "minimum" in schema:
        return _range(schema)
    if "x-kubernetes-int-or-string" in schema:
        return "integer or string"
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}s"
    if "additionalProperties" in schema:
        return f"map of {_plural(schema['additionalProperties'])}"
    return "time" if schema.get("format") == "date-time" else str(schema["type"])


def _plural(schema: Schema) -> str:
    return "integers or strings" if "x-kubernetes-int-or-string" in schema else f"{schema['type']}s"


def _range(schema: Schema) -> str:
    most = schema.get("maximum", INT32_MAX)
    return f"integer, {schema['minimum']} " + ("or more" if most >= INT32_MAX else f"to {most}")


def _default(schema: Schema) -> str:
    if "default" in schema:
        return code(str(schema["default"]))
    match = _DEFAULT.search(schema["description"])
    return match["value"] if match else ""


def _meaning(schema: Schema) -> str:
    return _DEFAULT.sub("", schema["description"])


def _width(column: Mapping[str, object]) -> str:
    return "with `-o wide`" if column.get("priority") else "always"
