"""The description and the limits that are declared with each field of a kind, and the check of a value against them.

CRDs and the reference in docs/ are generated from these descriptions (hack/generate), so a field changes in one place.
Decoding does not enforce the limits, with one exception: it refuses an empty string where an enum is required, which
validation could not tell from an absent field. `limit_violations` judges a decoded value as the API server does by the
CRD, for kinds that have many limits and few rules. A field that has its default counts as absent. Rules on several
fields belong to the validation of the kind.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Meta, inspect

from tfjob_controller.kube.names import MAX_NAME, NAME_PATTERN, NAME_WORDS

# The largest value of the API's int32 fields.
INT32_MAX = 2**31 - 1
# The largest integer that every JSON parser reads exactly.
SAFE_INTEGER_MAX = 2**53 - 1
# The largest value of each format of integers.
_INTEGERS = {"int32": INT32_MAX, "int64": 2**63 - 1}
# The message for a value that does not match the pattern. It is not part of the schema, but a CEL rule uses it.
PATTERN_MESSAGE = "patternMessage"

# Limits to pass to `describe`. The names of most objects (RFC 1123):
A_NAME: dict[str, Any] = {"maxLength": MAX_NAME, "pattern": NAME_PATTERN, PATTERN_MESSAGE: NAME_WORDS}
# The name of a framework in spec.framework and of its entry point:
A_FRAMEWORK: dict[str, Any] = {
    "maxLength": 63,
    "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
    PATTERN_MESSAGE: "must be of lower-case letters, digits and -, begin with a letter and not end with -",
}
# A name that begins with a domain, so that it is unique:
A_PREFIXED_NAME: dict[str, Any] = {
    "maxLength": MAX_NAME,
    "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9_./]*$",
    PATTERN_MESSAGE: "must be a name with a domain in front, such as kueue.x-k8s.io/multikueue",
}

# The value of a label.
LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
MAX_LABEL_VALUE = 63


def describe(description: str, **schema: Any) -> Meta:
    """The description of a field, with its limits and its default on the server under their names in JSON Schema."""
    return Meta(description=description, extra_json_schema=schema or None, min_length=1 if "enum" in schema else None)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    wire_name: str
    default: Any
    limits: Mapping[str, Any]


def limit_violations(value: msgspec.Struct, at: str) -> Iterator[str]:
    """One sentence for each violated limit of a value and its parts, beginning with the path of the field."""
    for field in _fields(type(value)):
        each, here = getattr(value, field.name), f"{at}.{field.wire_name}"
        if each is None or each == field.default:
            continue
        yield from (f"{here}: {problem}" for problem in _problems(each, field.limits))
        for index, item in enumerate(each if isinstance(each, tuple) else ()):
            if isinstance(item, msgspec.Struct):
                yield from limit_violations(item, f"{here}[{index}]")
        if isinstance(each, msgspec.Struct):
            yield from limit_violations(each, here)


def field_violation(kind: type[msgspec.Struct], field: str, value: object) -> str:
    """The violated limit of a value for this field, for the end of a sentence; empty for a value within the limits."""
    limits = next(each.limits for each in _fields(kind) if each.wire_name == field)
    return next(_problems(value, limits), "")


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind.__name__} is no Struct")
    return tuple(_Field(field.name, field.encode_name, field.default, _limits(field.type)) for field in info.fields)


def _limits(info: inspect.Type) -> Mapping[str, Any]:
    return info.extra_json_schema or {} if isinstance(info, inspect.Metadata) else {}


def _problems(value: object, limits: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(value, int) and limits.get("format") in _INTEGERS:
        yield from _number(value, limits)
    elif isinstance(value, str):
        yield from _text(value, limits)
    elif isinstance(value, tuple | dict):
        yield from _size(len(value), limits)


def _number(value: int, limits: Mapping[str, Any]) -> Iterator[str]:
    limit = _INTEGERS[limits["format"]]
    least, most = limits.get("minimum", -limit - 1), limits.get("maximum", limit)
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
        yield limits.get(PATTERN_MESSAGE, f"must match {pattern}")


def matches(pattern: str, value: str) -> bool:
    """Whether the value matches as in RE2, where `$` does not match before a final newline."""
    return re.search(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, value) is not None


def _size(size: int, limits: Mapping[str, Any]) -> Iterator[str]:
    most = limits.get("maxItems", limits.get("maxProperties", size))
    if size < limits.get("minItems", 0):
        yield "at least one entry is required"
    if size > most:
        yield f"must have at most {most} entries, has {size}"
