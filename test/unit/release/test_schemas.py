"""Which change of a schema breaks what was accepted, one by one."""

from __future__ import annotations

import pytest

from release.schemas import Break, Schema, compare

TEXT = {"type": "string"}
RULE = "x-kubernetes-validations"


def fields(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def ruled(*rules: str, **properties: Schema) -> Schema:
    return {**fields(**properties), RULE: [{"rule": each} for each in rules]}


NUMBER = {"type": "integer"}
KEEPS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LIST = {"type": "array", "items": TEXT}

BROKEN: dict[str, tuple[Schema, Schema, str, str]] = {
    "a field is gone": (fields(a=TEXT), fields(), "a", "removed"),
    "a field deep below is gone": (
        fields(a={"type": "array", "items": fields(b=TEXT)}),
        fields(a={"type": "array", "items": fields()}),
        "a[].b",
        "removed",
    ),
    "a field of any key's value is gone": (
        {"type": "object", "additionalProperties": fields(b=TEXT)},
        {"type": "object", "additionalProperties": fields()},
        "{}.b",
        "removed",
    ),
    "another type": (TEXT, NUMBER, "", "type"),
    "a number became an integer": ({"type": "number"}, NUMBER, "", "type"),
    "anything became text": ({}, TEXT, "", "type"),
    "a number or text became text": ({"x-kubernetes-int-or-string": True}, TEXT, "", "type"),
    "null is refused": ({**TEXT, "nullable": True}, TEXT, "", "nullable"),
    "a value is gone": ({**TEXT, "enum": ["a", "b"]}, {**TEXT, "enum": ["a", "c"]}, "", "enum"),
    "values are limited": (TEXT, {**TEXT, "enum": ["a"]}, "", "enum"),
    "a pattern is new": (TEXT, {**TEXT, "pattern": "^a"}, "", "pattern"),
    "a pattern is another": ({**TEXT, "pattern": "^b"}, {**TEXT, "pattern": "^a"}, "", "pattern"),
    "a format is new": (TEXT, {**TEXT, "format": "date-time"}, "", "format"),
    "a maximum is new": (NUMBER, {**NUMBER, "maximum": 3}, "", "bounds"),
    "a maximum is less": ({**NUMBER, "maximum": 4}, {**NUMBER, "maximum": 3}, "", "bounds"),
    "a minimum is more": ({**NUMBER, "minimum": 0}, {**NUMBER, "minimum": 1}, "", "bounds"),
    "a bound is no longer in it": (
        {**NUMBER, "minimum": 0},
        {**NUMBER, "minimum": 0, "exclusiveMinimum": True},
        "",
        "bounds",
    ),
    "a length is limited": (TEXT, {**TEXT, "maxLength": 3}, "", "bounds"),
    "emptiness is refused": (LIST, {**LIST, "minItems": 1}, "", "bounds"),
    "twice the same is refused": (LIST, {**LIST, "uniqueItems": True}, "", "bounds"),
    "only multiples": (NUMBER, {**NUMBER, "multipleOf": 2}, "", "multipleOf"),
    "only other multiples": ({**NUMBER, "multipleOf": 3}, {**NUMBER, "multipleOf": 2}, "", "multipleOf"),
    "a field became required": (fields(a=TEXT), {**fields(a=TEXT), "required": ["a"]}, "", "required"),
    "a new field is required": (fields(), {**fields(a=TEXT), "required": ["a"]}, "", "required"),
    "unknown fields are dropped": (KEEPS, fields(), "", "unknown fields"),
    "only named keys": ({"type": "object", "additionalProperties": TEXT}, fields(), "", "unknown fields"),
    "a default is another": ({**TEXT, "default": "a"}, {**TEXT, "default": "b"}, "", "default"),
    "a default is gone": ({**TEXT, "default": "a"}, TEXT, "", "default"),
    "a default is new": (fields(a=TEXT), fields(a={**TEXT, "default": "a"}), "a", "default"),
    "a list is merged by keys": (LIST, {**LIST, "x-kubernetes-list-type": "set"}, "", "merging"),
    "one of several": (TEXT, {**TEXT, "anyOf": [{"pattern": "^a"}]}, "", "combination"),
    "a rule is new": (ruled(a=TEXT), ruled("self.a != ''", a=TEXT), "", "validation"),
    "a rule is another": (ruled("self.a != ''", a=TEXT), ruled("self.a != 'b'", a=TEXT), "", "validation"),
    "a rule forbids a change": (ruled(a=TEXT), ruled("self.a == oldSelf.a", a=TEXT), "", "validation"),
    "a rule on changes of a new field or of another one": (
        ruled(b=TEXT),
        ruled("!has(self.a) && !has(oldSelf.b) || self.b == oldSelf.b", a=TEXT, b=TEXT),
        "",
        "validation",
    ),
    "a rule on a field that was there": (
        ruled(a=TEXT),
        ruled("!has(self.a) || self.a != ''", a=TEXT),
        "",
        "validation",
    ),
}

GOOD: dict[str, tuple[Schema, Schema]] = {
    "nothing": (fields(a=TEXT), fields(a=TEXT)),
    "a field is new": (fields(), fields(a=TEXT)),
    "a new field has bounds, values and a rule": (
        fields(),
        fields(a={**NUMBER, "minimum": 1, "enum": [1], RULE: [{"rule": "self > 0"}]}),
    ),
    "a field is described": (fields(a=TEXT), fields(a={**TEXT, "description": "What it is."})),
    "a field goes where unknown ones are kept": (
        {**KEEPS, "properties": {"a": TEXT}},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ),
    "an integer became a number": (NUMBER, {"type": "number"}),
    "text became text or a number": (TEXT, {"x-kubernetes-int-or-string": True}),
    "null is accepted": (TEXT, {**TEXT, "nullable": True}),
    "a value more": ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["a", "b"]}),
    "all values": ({**TEXT, "enum": ["a"]}, TEXT),
    "a pattern is gone": ({**TEXT, "pattern": "^a"}, TEXT),
    "bounds are wider": ({**NUMBER, "minimum": 1, "maximum": 3}, {**NUMBER, "minimum": 0}),
    "more multiples": ({**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 2}),
    "a field is no longer required": ({**fields(a=TEXT), "required": ["a"]}, fields(a=TEXT)),
    "a new field is required and has a default": (
        fields(),
        {**fields(a={**TEXT, "default": ""}), "required": ["a"]},
    ),
    "a rule is gone": (ruled("self.a != ''", a=TEXT), ruled(a=TEXT)),
    "a rule on changes of a new field": (
        ruled(),
        ruled("has(self.a) == has(oldSelf.a) && (!has(self.a) || self.a == oldSelf.a)", a=TEXT),
    ),
    "a rule about a new field": (ruled(), ruled("!has(self.a) || self.a != ''", a=TEXT)),
    "a rule on some changes of a new field": (
        ruled(b=TEXT),
        ruled("!has(self.a) && !has(oldSelf.a) || self.b == '' || self.a == oldSelf.a", a=TEXT, b=TEXT),
    ),
    "a rule that lets old values be": (ruled(a=TEXT), ruled("self == oldSelf || self.a != ''", a=TEXT)),
    "a combination is gone": ({**TEXT, "anyOf": [{"pattern": "^a"}]}, TEXT),
}


@pytest.mark.parametrize(("old", "new", "path", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_narrower_schema_breaks_at_this_place_for_this_reason(old: Schema, new: Schema, path: str, rule: str) -> None:
    (found,) = compare(old, new)
    assert (found.path, found.rule) == (path, rule)
    assert found.why


@pytest.mark.parametrize(("old", "new"), GOOD.values(), ids=GOOD)
def test_a_wider_schema_breaks_nothing(old: Schema, new: Schema) -> None:
    assert list(compare(old, new)) == []


def test_every_break_is_found_with_its_whole_path() -> None:
    old = fields(spec=fields(a={**NUMBER, "maximum": 9}, b=TEXT))
    new = fields(spec=fields(a={**NUMBER, "maximum": 8}))
    assert list(compare(old, new)) == [
        Break("spec.a", "bounds", "maximum was 9, is 8"),
        Break("spec.b", "removed", "the field is gone: it would be dropped from objects"),
    ]
