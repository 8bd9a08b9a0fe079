"""Adds to a pod spec what it does not have yet; what it has stays, and the spec given is never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Part = Mapping[str, Any]


def with_volumes(pod_spec: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    """A volume whose name the pod has already is left out."""
    return {**pod_spec, "volumes": _joined(pod_spec.get("volumes"), volumes, ("name",))}


def with_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    """A mount is left out if its volume is mounted already, or its path taken."""
    return {**container, "volumeMounts": _joined(container.get("volumeMounts"), mounts, ("name", "mountPath"))}


def with_container(pod_spec: Part, name: str, change: Callable[[Part], Part]) -> dict[str, Any]:
    """The container of that name, changed; a pod without it stays as it is."""
    containers = [change(each) if each.get("name") == name else each for each in pod_spec.get("containers") or ()]
    return {**pod_spec, "containers": containers}


def container_of(pod_spec: Part, name: str) -> Part | None:
    return next((each for each in pod_spec.get("containers") or () if each.get("name") == name), None)


def mount_path(container: Part, volume: str, default: str) -> str:
    """Where the container mounts the volume itself, else `default`."""
    mounts = container.get("volumeMounts") or ()
    return next((str(each["mountPath"]) for each in mounts if each.get("name") == volume), default)


def _joined(present: Iterable[Part] | None, added: Iterable[Part], keys: tuple[str, ...]) -> list[Part]:
    kept = list(present or ())
    taken = {(key, each.get(key)) for each in kept for key in keys}
    return kept + [each for each in added if not any((key, each[key]) in taken for key in keys)]
