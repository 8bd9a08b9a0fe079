"""Merges the objects of two installations of which one is chosen by a value: one template has both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from helmchart.tree import ABSENT, Alternatives, Condition, Manifest, Tree

Key = tuple[str, str, str]


def merged(usual: Iterable[Manifest], other: Iterable[Manifest], condition: Condition) -> list[Manifest]:
    """Returns the objects of `other` while the condition holds, and else those of `usual`.

    Objects of the same kind, name and namespace are merged, others get the condition.
    """
    others = {_key(each): each for each in other}
    result = []
    for each in usual:
        same = others.pop(_key(each), None)
        if same is None:
            result.append(_conditional(each, condition.negated()))
        else:
            result.append(replace(each, tree=_merged(each.tree, same.tree, condition)))
    return [*result, *(_conditional(each, condition) for each in others.values())]


def _key(manifest: Manifest) -> Key:
    return manifest.kind, manifest.name, str(manifest.tree["metadata"].get("namespace", ""))


def _conditional(manifest: Manifest, condition: Condition) -> Manifest:
    return replace(manifest, conditions=(*manifest.conditions, condition))


def _merged(usual: Tree, other: Tree, condition: Condition) -> Tree:
    if usual == other:
        return usual
    if isinstance(usual, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*usual, *other])
        return {key: _merged(usual.get(key, ABSENT), other.get(key, ABSENT), condition) for key in keys}
    if isinstance(usual, list) and isinstance(other, list) and len(usual) == len(other):
        return [_merged(one, two, condition) for one, two in zip(usual, other, strict=True)]
    if usual is ABSENT:
        return Alternatives(((condition, other),))
    if other is ABSENT:
        return Alternatives(((condition.negated(), usual),))
    return Alternatives(((condition, other),), usual)
