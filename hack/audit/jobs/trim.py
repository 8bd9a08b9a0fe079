"""Reduces an object to what the rules may read, to limit memory. The data of Secrets is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.jobs.history import CONFIG_MAPS, SECRETS, Object

# Dropped wherever they occur: what pods are made of, and how an object came about.
_DROPPED = frozenset(
    (
        "template",
        "podSpecOverrides",
        "containers",
        "env",
        "volumes",
        "managedFields",
        "kubectl.kubernetes.io/last-applied-configuration",
    )
)


def trimmed(kind: str, obj: Mapping[str, Any]) -> Object:
    """Returns a copy without details; of Secrets and ConfigMaps only the metadata."""
    kept: Object = _without_details(obj)
    return {"metadata": kept["metadata"]} if kind in (SECRETS, CONFIG_MAPS) else kept


def _without_details(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_details(item) for name, item in value.items() if name not in _DROPPED}
    return [_without_details(item) for item in value] if isinstance(value, list) else value
