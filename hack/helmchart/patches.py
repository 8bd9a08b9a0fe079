"""JSON patches (RFC 6902) on a tree, as kustomizations contain them, under a condition.

With a condition the tree afterwards has both: what the patch gives while the condition holds, and what was there
before. Operations: add, replace, remove, test.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from helmchart.tree import ABSENT, Alternatives, Condition, Tree, override

Operation = Mapping[str, Any]


class PatchError(Exception):
    """A patch does not fit its target, or cannot be expressed as a condition."""


def apply(tree: Tree, operations: Sequence[Operation], condition: Condition | None) -> Tree:
    """Returns the patched tree; the given one is unchanged. None: the patch always holds."""
    patched = copy.deepcopy(tree)
    for each in operations:
        try:
            _apply(patched, each, condition)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchError(f"{each['op']} {each['path']}: {error!r}") from error
    return patched


def _apply(tree: Tree, operation: Operation, condition: Condition | None) -> None:
    *parents, last = _steps(operation["path"])
    place = tree
    for step in parents:
        place = _reached(place[_key(place, step, condition)], condition)
    match operation["op"]:
        case "test":
            _test(place, last, operation["value"], condition)
        case "add" if isinstance(place, list):
            _insert(place, last, copy.deepcopy(operation["value"]), condition)
        case "add" | "replace" as op:
            if op == "replace" and _key(place, last, condition) not in _keys(place):
                raise PatchError(f"{operation['path']} is not there")
            _set(place, last, copy.deepcopy(operation["value"]), condition)
        case "remove":
            _remove(place, last, condition)
        case op:
            raise PatchError(f"{op} is not supported")


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.removeprefix("/").split("/")]


def _keys(place: Tree) -> Any:
    return range(len(place)) if isinstance(place, list) else place.keys()


def _key(place: Tree, step: str, condition: Condition | None) -> Any:
    """Returns a key or an index. Indexes do not count items that are missing under the condition."""
    if not isinstance(place, list):
        return step
    there = [index for index, item in enumerate(place) if _reached(item, condition) is not ABSENT]
    return there[int(step)]


def _reached(value: Tree, condition: Condition | None) -> Tree:
    if not isinstance(value, Alternatives):
        return value
    if condition is None:
        raise PatchError("a patch without condition cannot change what depends on one")
    return value.under(condition)


def _test(place: Tree, step: str, expected: Tree, condition: Condition | None) -> None:
    found = _reached(place[_key(place, step, condition)], condition)
    if found != expected:
        raise PatchError(f"expected {expected!r}, found {found!r}")


def _insert(items: list[Tree], step: str, value: Tree, condition: Condition | None) -> None:
    if step != "-":
        raise PatchError("items are only added at the end of a list")
    items.append(value if condition is None else Alternatives(((condition, value),)))


def _set(place: Tree, step: str, value: Tree, condition: Condition | None) -> None:
    key = _key(place, step, condition)
    if condition is None:
        place[key] = value
    elif isinstance(place, dict):
        place[key] = override(place.get(key, ABSENT), condition, value)
    else:
        place[key] = override(place[key], condition, value)


def _remove(place: Tree, step: str, condition: Condition | None) -> None:
    key = _key(place, step, condition)
    if condition is None:
        del place[key]
        return
    old = place[key]
    if isinstance(old, Alternatives):
        raise PatchError("only what is always there can be removed by a condition")
    place[key] = Alternatives(((condition.negated(), old),))
