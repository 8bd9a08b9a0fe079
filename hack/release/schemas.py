"""Checks whether a new schema of a CRD accepts all objects that an old one accepted. Pure: dicts in, breaks out.

An object of the old version, stored or in a user's file, must be accepted unchanged, keep all its fields, and have the
same meaning. So these are breaks: a field that is removed, one that became required (without a default), fewer
types, values or patterns, tighter bounds, another default, a list that is merged in another way, and a new rule in
CEL. Four sorts of new rules are no breaks:

- one below a new field: no old object has it
- `!has(self.FIELD) || ...` or `!has(self.FIELD) && !has(oldSelf.FIELD) || ...` with such a field
- `has(self.FIELD) == has(oldSelf.FIELD) && ...` with such a field, which rejects only its changes
- `self == oldSelf || ...`, which rejects only changes, and accepts stored and newly created objects

Patterns and combinations (`anyOf`, ...) that differ count as narrower, since they cannot be compared. Deliberate breaks
are recorded with their reasons in exceptions.yaml (release.records).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_RULES = "x-kubernetes-validations"
_ALL_TYPES = frozenset({"array", "boolean", "integer", "number", "object", "string"})
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "minLength", "minItems", "minProperties")
_RATCHETING = re.compile(r"\s*self\s*==\s*oldSelf\s*\|\|")
_ONLY_WITH = re.compile(r"\s*!\s*has\(self\.(\w+)\)(?:\s*&&\s*!\s*has\(oldSelf\.\1\))?\s*\|\|")
_ONLY_CHANGES = re.compile(r"\s*has\(self\.(\w+)\)\s*==\s*has\(oldSelf\.\1\)\s*&&")


@dataclass(frozen=True, slots=True)
class Break:
    """`path` as in `spec.replicaSpecs[].replicas`, or empty for the whole object; `rule` is one of those below."""

    path: str
    rule: str
    why: str


def compare(old: Schema, new: Schema, path: str = "") -> Iterator[Break]:
    """Yields every break from `old` to `new`, parents first."""
    for rule, judge in _JUDGES.items():
        for why in judge(old, new):
            yield Break(path, rule, why)
    for name, child in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from compare(child, new["properties"][name], f"{path}.{name}".lstrip("."))
        elif not _keeps_unknown(new):
            yield Break(f"{path}.{name}".lstrip("."), "removed", "the field is gone: it would be dropped from objects")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(old.get(keyword), Mapping) and isinstance(new.get(keyword), Mapping):
            yield from compare(old[keyword], new[keyword], path + mark)


def _keeps_unknown(schema: Schema) -> bool:
    return bool(schema.get(_PRESERVES) or schema.get("additionalProperties"))


def _types(schema: Schema) -> frozenset[str]:
    if schema.get(_INT_OR_STRING):
        return frozenset({"integer", "string"})
    if "type" not in schema:
        return _ALL_TYPES
    return frozenset({"number", "integer"} if schema["type"] == "number" else {schema["type"]})


def _type(old: Schema, new: Schema) -> Iterator[str]:
    if lost := _types(old) - _types(new):
        yield f"no longer takes: {', '.join(sorted(lost))}"


def _nullable(old: Schema, new: Schema) -> Iterator[str]:
    if old.get("nullable") and not new.get("nullable"):
        yield "no longer takes null"


def _enum(old: Schema, new: Schema) -> Iterator[str]:
    if "enum" not in new:
        return
    if "enum" not in old:
        yield f"took anything, now only: {', '.join(map(str, new['enum']))}"
    elif lost := [each for each in old["enum"] if each not in new["enum"]]:
        yield f"no longer takes: {', '.join(map(str, lost))}"


def _form(keyword: str) -> Callable[[Schema, Schema], Iterator[str]]:
    def judge(old: Schema, new: Schema) -> Iterator[str]:
        if keyword in new and new[keyword] != old.get(keyword):
            yield f"was {old.get(keyword, 'not there')}, is {new[keyword]}"

    return judge


def _bounds(old: Schema, new: Schema) -> Iterator[str]:
    for names, sign in ((_UPPER, 1), (_LOWER, -1)):
        for name in names:
            if name in new and (name not in old or sign * new[name] < sign * old[name]):
                yield f"{name} was {old.get(name, 'not there')}, is {new[name]}"
    for name in ("exclusiveMaximum", "exclusiveMinimum", "uniqueItems"):
        if new.get(name) and not old.get(name):
            yield f"{name} is new"


def _multiple(old: Schema, new: Schema) -> Iterator[str]:
    if "multipleOf" in new and ("multipleOf" not in old or old["multipleOf"] % new["multipleOf"]):
        yield f"was {old.get('multipleOf', 'not there')}, is {new['multipleOf']}"


def _required(old: Schema, new: Schema) -> Iterator[str]:
    properties = new.get("properties", {})
    for name in new.get("required", ()):
        # A default is filled in before anything is validated.
        if name not in old.get("required", ()) and "default" not in properties.get(name, {}):
            yield f"{name} became required, and has no default"


def _unknown(old: Schema, new: Schema) -> Iterator[str]:
    if old.get(_PRESERVES) and not _keeps_unknown(new):
        yield "fields that are not named were kept, and would be dropped"
    if old.get("additionalProperties") and not _keeps_unknown(new):
        yield "took any key, now only those that are named"


def _default(old: Schema, new: Schema) -> Iterator[str]:
    if old.get("default") != new.get("default"):
        yield f"was {old.get('default', 'none')}, is {new.get('default', 'none')}: the same object means something else"


def _merging(old: Schema, new: Schema) -> Iterator[str]:
    for name in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"):
        if old.get(name) != new.get(name):
            yield f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}: it is applied otherwise"


def _combination(old: Schema, new: Schema) -> Iterator[str]:
    for name in ("allOf", "anyOf", "oneOf", "not"):
        if name in new and new[name] != old.get(name):
            yield f"{name} is {'another' if name in old else 'new'}"


def _validations(old: Schema, new: Schema) -> Iterator[str]:
    before = {each["rule"] for each in old.get(_RULES, ())}
    for rule in (each["rule"] for each in new.get(_RULES, ())):
        only_with = _ONLY_WITH.match(rule) or _ONLY_CHANGES.match(rule)
        is_of_new_field = only_with is not None and only_with[1] not in old.get("properties", {})
        if rule not in before and not is_of_new_field and not _RATCHETING.match(rule):
            yield f"a rule that was not there: {rule}"


_JUDGES: Mapping[str, Callable[[Schema, Schema], Iterator[str]]] = {
    "type": _type,
    "nullable": _nullable,
    "enum": _enum,
    "pattern": _form("pattern"),
    "format": _form("format"),
    "bounds": _bounds,
    "multipleOf": _multiple,
    "required": _required,
    "unknown fields": _unknown,
    "default": _default,
    "merging": _merging,
    "combination": _combination,
    "validation": _validations,
}
