"""Who wrote a field last: the `managedFields` that the API server keeps with each object.

Caches do not keep them, since they are half of an object. They are read with a request of their own, and only to tell
a user which other client changes an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


class ManagedFieldsEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that one manager set; `fields_v1` is a tree whose keys are `f:NAME`."""

    manager: str = ""
    time: str = ""
    fields_v1: Mapping[str, Any] = msgspec.field(name="fieldsV1", default={})


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str] = {}
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ManagedObject(msgspec.Struct, frozen=True):
    """The labels of an object, and who set which of its fields."""

    metadata: _Metadata = _Metadata()


def managers_of(entries: Iterable[ManagedFieldsEntry], path: str) -> Sequence[str]:
    """Returns the managers of a field such as `spec.suspend`, the last writer first."""
    names = [f"f:{part}" for part in path.split(".")]
    found = [entry for entry in entries if _has(entry.fields_v1, names)]
    return [each.manager for each in sorted(found, key=lambda each: each.time, reverse=True)]


def _has(tree: Mapping[str, Any], names: Sequence[str]) -> bool:
    for name in names:
        found = tree.get(name)
        if not isinstance(found, Mapping):
            return False
        tree = found
    return True
