r"""A field of an object as kubectl's JSONPath names it, to sort by: `.metadata.name`, `{.spec.numNodes}`.

Only names of fields are supported; a dot in a name is written as `\.`. Elements of lists, filters and wildcards are
not. Source: kubectl pkg/cmd/get/customcolumn.go (RelaxedJSONPathExpression), sorter.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tfjob_controller.util.commandline import UsageError

_T = TypeVar("_T")
_DOT = re.compile(r"(?<!\\)\.")
_NOT_SUPPORTED = re.compile(r"[\[\]*@?()]|\.\.")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The names of fields, from the outermost on; `text` is how the user has written them."""

    text: str
    names: tuple[str, ...]

    def sorted(self, items: Iterable[tuple[Any, _T]]) -> list[tuple[Any, _T]]:
        """The items by the value of the first of each pair. Raises `UsageError` if none has the field."""
        pairs = list(items)
        values = [self.value_in(pair[0]) for pair in pairs]
        if pairs and all(value is None for value in values):
            raise UsageError(f"--sort-by: no job has the field {self.text}")
        order = sorted(range(len(pairs)), key=lambda index: sort_key(values[index]))
        return [pairs[index] for index in order]

    def value_in(self, item: Any) -> Any:
        """The value of the field; None if there is none."""
        for name in self.names:
            item = item.get(name) if isinstance(item, Mapping) else None
        return item


def order_of(text: str) -> FieldPath | str:
    """The path, or the text itself if it is a single word, which names a column. Raises `UsageError`."""
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if "." not in inner:
        return inner
    names = tuple(name.replace("\\.", ".") for name in _DOT.split(inner.removeprefix(".")))
    if _NOT_SUPPORTED.search(inner) or not all(names):
        raise UsageError(f"--sort-by: {text!r} is not supported: name a field such as .metadata.creationTimestamp")
    return FieldPath(text, names)


def sort_key(value: Any) -> tuple[int, float, str]:
    """Numbers come first, then texts, then what has no value."""
    if value is None:
        return 2, 0.0, ""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (0, float(value), "") if is_number else (1, 0.0, str(value))
