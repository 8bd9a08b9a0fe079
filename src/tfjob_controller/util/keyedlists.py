"""Lists of objects in which the value of a key identifies an object, such as the containers of a pod by their names.

The value of a key that is a path identifies an object by the place that it names, however the path is written. Pure:
arguments are never changed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

Item = Mapping[str, Any]


def normal_path(path: str) -> str:
    """The path of a mount in the form in which paths are compared: `/a//b/.` is `/a/b`, and `a` is `/a`."""
    return posixpath.normpath("/" + path.lstrip("/"))


def item_key(item: Item, field: str) -> object:
    """What identifies an item in a list of a pod, given the list's key, such as `name` or `mountPath`."""
    value = item.get(field)
    return normal_path(value) if field == "mountPath" and isinstance(value, str) else value


def complete_items(first: Iterable[Item] | None, second: Iterable[Item], *keys: str) -> list[Any]:
    """The items of `first`, then those of `second` that share none of these keys with one of them."""
    kept = list(first or ())
    taken = {(key, item_key(item, key)) for item in kept for key in keys}
    return kept + [item for item in second if not any((key, item_key(item, key)) in taken for key in keys)]
