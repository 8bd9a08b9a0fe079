"""Judges a value by the limits that stand beside its fields (`describe.says`), as the API server does by the CRD.

For kinds whose limits are many and whose rules are few. A field that has its default is absent, and absent fields are
not judged. What goes beyond one field is the business of the kind's own validation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from tfjob_controller.api.describe import IN_WORDS, INT32_MAX


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    wire_name: str
    default: Any
    limits: Mapping[str, Any]


def beyond_limits(value: msgspec.Struct, at: str) -> Iterator[str]:
    """One sentence for each limit that a value or what it holds does not keep, beginning with the path of the field."""
    for field in _fields(type(value)):
        each, here = getattr(value, field.name), f"{at}.{field.wire_name}"
        if each is None or each == field.default:
            continue
        yield from (f"{here}: {problem}" for problem in _problems(each, field.limits))
        for index, item in enumerate(each if isinstance(each, tuple) else ()):
            if isinstance(item, msgspec.Struct):
                yield from beyond_limits(item, f"{here}[{index}]")
        if isinstance(each, msgspec.Struct):
            yield from beyond_limits(each, here)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind.__name__} is no Struct")
    return tuple(_Field(each.name, each.encode_name, each.default, _limits(each.type)) for each in info.fields)


def _limits(info: inspect.Type) -> Mapping[str, Any]:
    return info.extra_json_schema or {} if isinstance(info, inspect.Metadata) else {}


def _problems(value: object, limits: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, int) and limits.get("format") == "int32":
        yield from _number(value, limits)
    elif isinstance(value, str):
        yield from _text(value, limits)
    elif isinstance(value, tuple | dict):
        yield from _size(len(value), limits)


def _number(value: int, limits: Mapping[str, Any]) -> Iterator[str]:
    least, most = limits.get("minimum", -INT32_MAX - 1), limits.get("maximum", INT32_MAX)
    if not least <= value <= most:
        yield f"must be from {least} to {most}, is {value}"


def _text(value: str, limits: Mapping[str, Any]) -> Iterator[str]:
    choices, pattern = limits.get("enum"), limits.get("pattern")
    if choices is not None and value not in choices:
        yield f"must be one of {', '.join(choices)}, is {value}"
    if not value and limits.get("minLength"):
        yield "must not be empty"
    elif len(value) > limits.get("maxLength", len(value)):
        yield f"must have at most {limits['maxLength']} characters, has {len(value)}"
    elif pattern is not None and not matches(pattern, value):
        yield limits.get(IN_WORDS, f"must match {pattern}")


def matches(pattern: str, value: str) -> bool:
    """As the API server's RE2 sees it, for which `$` is the very end, and not also before a last newline."""
    return re.search(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, value) is not None


def _size(size: int, limits: Mapping[str, Any]) -> Iterator[str]:
    most = limits.get("maxItems", limits.get("maxProperties", size))
    if size < limits.get("minItems", 0):
        yield "at least one entry is required"
    if size > most:
        yield f"must have at most {most} entries, has {size}"
