"""Manifests some parts of which depend on values of the chart.

A tree is what YAML gives (mappings, lists, scalars) with these additions:

- `Alternatives` in the place of a value or of a list's item: the value of the first condition that holds, or else the
  default. `ABSENT` says that the key or item is missing then.
- `Template`: a scalar that Helm renders. `Block`: a mapping or a list that Helm renders.
- The key `INCLUDE` of a mapping: more entries that Helm renders.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Tree = Any

INCLUDE: Final = "\0include"


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression of Go's templates, such as `.Values.dashboard.enabled`, or its negation."""

    expression: str
    holds: bool = True

    def negated(self) -> Condition:
        return Condition(self.expression, not self.holds)

    def text(self) -> str:
        return self.expression if self.holds else f"not {parenthesized(self.expression)}"


def parenthesized(expression: str) -> str:
    return f"({expression})" if " " in expression else expression


def conjunction(conditions: tuple[Condition, ...]) -> str:
    if len(conditions) == 1:
        return conditions[0].text()
    return " ".join(["and", *(parenthesized(each.text()) for each in conditions)])


class _Missing(enum.Enum):
    """The type of ABSENT, which stays the same object in deep copies."""

    ABSENT = enum.auto()


ABSENT: Final = _Missing.ABSENT


@dataclass(frozen=True, slots=True)
class Alternatives:
    """`cases` are tried in their order; later patches come first."""

    cases: tuple[tuple[Condition, Tree], ...]
    default: Tree = ABSENT

    def under(self, condition: Condition) -> Tree:
        """Returns the value if `condition` holds and no other one is known to hold."""
        for known, value in self.cases:
            if known == condition:
                return value
        # What is only there without the condition.
        left = [value for known, value in self.cases if known != condition.negated()]
        return left[0] if left and self.default is ABSENT else self.default

    def values(self) -> Iterator[Tree]:
        """Returns all values that are possible."""
        yield from (value for _, value in self.cases if value is not ABSENT)
        if self.default is not ABSENT:
            yield self.default


@dataclass(frozen=True, slots=True)
class Template:
    """The text of a scalar, with Go's templates in it. `quoted` writes it as a string in double quotes."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """An expression whose value is a mapping or a list. `lines`: it is the text of a block scalar instead."""

    expression: str
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of the chart. `source` is its folder in manifests/; it exists if all conditions hold."""

    tree: dict[str, Tree]
    source: str
    conditions: tuple[Condition, ...] = ()

    @property
    def kind(self) -> str:
        return str(self.tree["kind"])

    @property
    def name(self) -> str:
        return str(self.tree["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.tree["metadata"].get("labels", {})
        return found


def possible(value: Tree) -> Iterator[Tree]:
    """Returns the value, or if it depends on conditions, all that it can be."""
    if isinstance(value, Alternatives):
        for each in value.values():
            yield from possible(each)
    else:
        yield value


def override(value: Tree, condition: Condition, replacement: Tree) -> Alternatives:
    """Returns a value that is replaced while the condition holds."""
    if isinstance(value, Alternatives):
        return Alternatives(((condition, replacement), *value.cases), value.default)
    return Alternatives(((condition, replacement),), value)
