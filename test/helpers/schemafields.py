"""The fields of a structural schema as short lines, to compare what two CRDs accept and keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

# What accepts no other objects, or has a line of its own.
_SILENT = {"type", "format", "description", "properties", "items", "additionalProperties", "anyOf", "pattern"}


def fields_of(schema: Schema, stop: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each field and what it accepts, in the order of paths; nothing below a field named `stop`.

    `[]` is an item of a list and `{}` a value of a map. Patterns and descriptions are left out.
    """
    yield path or ".", _accepted(schema)
    if path.endswith(f".{stop}"):
        return
    for name, field in sorted(schema.get("properties", {}).items()):
        yield from fields_of(field, stop, f"{path}.{name}")
    if "items" in schema:
        yield from fields_of(schema["items"], stop, f"{path}[]")
    if "additionalProperties" in schema:
        yield from fields_of(schema["additionalProperties"], stop, f"{path}{{}}")


def _accepted(schema: Schema) -> str:
    limits = {name: sorted(value) if name == "required" else value for name, value in schema.items()}
    others = {name: value for name, value in sorted(limits.items()) if name not in _SILENT}
    is_any = others.pop("x-kubernetes-int-or-string", False)
    words = ["int-or-string" if is_any else schema["type"], schema.get("format", "")]
    return " ".join([word for word in words if word] + ([json.dumps(others, sort_keys=True)] if others else []))
