"""Fair shares of namespaces: turns, threads, and a bounded cache in which a namespace displaces only its own values."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def in_turns(items: Iterable[ValueT], namespace_of: Callable[[ValueT], str]) -> list[ValueT]:
    """Returns the items, of which none is None, of all namespaces in turn, those of each in their order."""
    by_namespace: dict[str, list[ValueT]] = {}
    for item in items:
        by_namespace.setdefault(namespace_of(item), []).append(item)
    return [item for turn in itertools.zip_longest(*by_namespace.values()) for item in turn if item is not None]


def most_of_namespace(threads: int) -> int:
    """Returns how many of the threads one namespace has at most: four fifths, and if there are several, not all."""
    return threads - max(1, threads // 5) or 1


class FairCache(Generic[KeyT, ValueT]):
    """Values by namespace and key, at most `size` of them. Not thread-safe.

    When it is full, the namespace with the most values loses the one that was put longest ago. So a namespace keeps
    what it has as long as another one has more. O(1), and O(namespaces) when a value is displaced.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[tuple[str, KeyT], ValueT] = OrderedDict()  # the one put longest ago first
        self._keys: dict[str, OrderedDict[KeyT, None]] = {}  # of each namespace, in the same order

    def __len__(self) -> int:
        return len(self._values)

    def get(self, namespace: str, key: KeyT) -> ValueT | None:
        return self._values.get((namespace, key))

    def oldest(self) -> ValueT | None:
        """Returns the value that was put longest ago."""
        return next(iter(self._values.values()), None)

    def put(self, namespace: str, key: KeyT, value: ValueT) -> ValueT | None:
        """Add or replace a value, which becomes the newest. Returns the value that it displaced, if any."""
        self._values[namespace, key] = value
        self._values.move_to_end((namespace, key))
        keys = self._keys.setdefault(namespace, OrderedDict())
        keys[key] = None
        keys.move_to_end(key)
        return self.displace() if len(self._values) > self._size else None

    def displace(self) -> ValueT | None:
        """Remove and return the oldest value of the namespace with the most; None if there is none."""
        if not self._keys:
            return None
        largest = max(self._keys, key=lambda each: len(self._keys[each]))
        return self.remove(largest, next(iter(self._keys[largest])))

    def remove(self, namespace: str, key: KeyT) -> ValueT | None:
        """Remove and return a value; None if there is none."""
        value = self._values.pop((namespace, key), None)
        if value is not None:
            keys = self._keys[namespace]
            del keys[key]
            if not keys:
                del self._keys[namespace]
        return value

    def drain(self) -> list[ValueT]:
        """Remove and return all values, in the order in which they were put."""
        values = list(self._values.values())
        self._values.clear()
        self._keys.clear()
        return values
