"""Writes trees as the text of Helm's templates.

Every line of a condition (`{{- if … }}`) also removes the line break before it, so Helm renders no empty lines.
Braces of the manifests themselves, such as those of alerts, are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

from helmchart.tree import ABSENT, INCLUDE, Alternatives, Block, Manifest, Template, Tree, conjunction

_WIDTH = 118
_STEP = "  "
# A template's action is never broken over lines.
_WORD = re.compile(r"(?:\{\{.*?\}\}|\S)+")

Lines = Iterator[str]
Writer = Callable[[Tree, str], Lines]


def template_file(sources: str, manifests: Iterable[Manifest]) -> str:
    """Returns the text of one template with several objects. `sources` says what it is generated from."""
    lines = [header(sources)]
    for each in manifests:
        body = ["---", *_mapping(each.tree, "")]
        lines += _under(conjunction(each.conditions), body) if each.conditions else body
    return "\n".join(lines) + "\n"


def header(sources: str) -> str:
    return f"{{{{- /* Generated from {sources} by `make generate`. */}}}}"


def escaped(text: str) -> str:
    """Returns a text that Helm renders as it is."""
    return text.replace("{{", '{{ "{{" }}')


def _under(expression: str, body: Iterable[str]) -> Lines:
    yield f"{{{{- if {expression} }}}}"
    yield from body
    yield "{{- end }}"


def _mapping(tree: dict[str, Tree], indent: str) -> Lines:
    for key, value in tree.items():
        if key == INCLUDE:
            yield from _alternatives(value, indent, _spliced)
        else:
            yield from _alternatives(value, indent, _entry(key))


def _alternatives(value: Tree, indent: str, write: Writer) -> Lines:
    """Writes each possible value under its condition."""
    if not isinstance(value, Alternatives):
        yield from write(value, indent)
        return
    words = "if"
    for condition, each in value.cases:
        yield f"{indent}{{{{- {words} {condition.text()} }}}}"
        if each is not ABSENT:
            yield from write(each, indent)
        words = "else if"
    if value.default is not ABSENT:
        yield f"{indent}{{{{- else }}}}"
        yield from write(value.default, indent)
    yield f"{indent}{{{{- end }}}}"


def _entry(key: str) -> Writer:
    name = _scalar(key)

    def write(value: Tree, indent: str) -> Lines:
        match value:
            case Block(lines=True):
                yield f"{indent}{name}: |"
                yield from _spliced(value, indent + _STEP)
            case Block():
                yield f"{indent}{name}:"
                yield from _spliced(value, indent + _STEP)
            case dict() if value:
                yield f"{indent}{name}:"
                yield from _mapping(value, indent + _STEP)
            case list() if value:
                yield f"{indent}{name}:"
                yield from _items(value, indent + _STEP)
            case _:
                first, *rest = _text(value, indent + _STEP)
                yield f"{indent}{name}: {first}"
                yield from rest

    return write


def _items(items: list[Tree], indent: str) -> Lines:
    for each in items:
        yield from _alternatives(each, indent, _item)


def _item(value: Tree, indent: str) -> Lines:
    match value:
        case Block():
            yield from _spliced(value, indent)
        case dict() if value:
            first, *rest = _mapping(_certain_first(value), indent + _STEP)
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        case _:
            first, *rest = _text(value, indent + _STEP)
            yield f"{indent}- {first}"
            yield from rest


def _certain_first(tree: dict[str, Tree]) -> dict[str, Tree]:
    """Returns the mapping with an entry in front that has no condition, since the dash of an item needs one."""
    certain = next(key for key, value in tree.items() if key != INCLUDE and not isinstance(value, Alternatives))
    return {certain: tree[certain], **tree}


def _spliced(value: Tree, indent: str) -> Lines:
    """Writes entries or items that Helm renders."""
    if not isinstance(value, Block):
        raise TypeError(f"not a block: {value!r}")
    yield f"{indent}{{{{- {value.expression} | nindent {len(indent)} }}}}"


def _text(value: Tree, indent: str) -> Lines:
    """Writes a scalar. All but its first line are indented."""
    if isinstance(value, Template) and not value.quoted:
        yield value.text
        return
    text = value.text if isinstance(value, Template) else value
    if not isinstance(text, str):
        yield _scalar(text)
    elif "\n" in text and not text.startswith((" ", "\n")):
        yield "|" if text.endswith("\n") else "|-"
        lines = text.removesuffix("\n").split("\n")
        yield from (f"{indent}{_raw(line, value)}" if line else "" for line in lines)
    elif len(text) > _WIDTH and "  " not in text and text == text.strip():
        yield ">-"
        yield from (f"{indent}{_raw(line, value)}" for line in _folded(text, _WIDTH - len(indent)))
    else:
        yield json.dumps(text, ensure_ascii=False) if isinstance(value, Template) else escaped(_scalar(text))


def _raw(line: str, value: Tree) -> str:
    return line if isinstance(value, Template) else escaped(line)


def _folded(text: str, width: int) -> Lines:
    line = ""
    for word in _WORD.findall(text):
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _scalar(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
