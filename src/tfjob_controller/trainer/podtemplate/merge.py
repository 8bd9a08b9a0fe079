"""Functions that combine pod templates from several sources. Frameworks use them as well.

Functions `with_…` override: a new item replaces one of the same name. Functions `with_missing_…` complete: the items of
the pod stay. Pure: arguments are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Part = Mapping[str, Any]
# What identifies the items of a pod's lists.
_BY_NAME, _BY_PATH = "name", "mountPath"


def override_items(first: Iterable[Part] | None, second: Iterable[Part] | None, key: str = _BY_NAME) -> list[Any]:
    """The items of `first`, each replaced by that of `second` with the same key, then the new items of `second`."""
    new = {each.get(key): each for each in second or ()}
    kept = [new.pop(each.get(key), each) for each in first or ()]
    return [*kept, *new.values()]


def complete_items(first: Iterable[Part] | None, second: Iterable[Part], *keys: str) -> list[Any]:
    """The items of `first`, then those of `second` that share none of these keys with one of them."""
    kept = list(first or ())
    taken = {(key, each.get(key)) for each in kept for key in keys}
    return kept + [each for each in second if not any((key, each[key]) in taken for key in keys)]


# Containers


def with_env(container: Part, env: Iterable[Part]) -> dict[str, Any]:
    """Adds variables at the end, where they may refer to earlier ones. Existing ones of the same name are replaced."""
    added = list(env)
    names = {each.get("name") for each in added}
    kept = [each for each in container.get("env") or () if each.get("name") not in names]
    return {**container, "env": [*kept, *added]} if kept or added else dict(container)


def with_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    """Adds mounts, which replace those at the same path."""
    joined = override_items(container.get("volumeMounts"), mounts, _BY_PATH)
    return {**container, "volumeMounts": joined} if joined else dict(container)


def with_missing_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    """Adds mounts whose volume is not mounted yet and whose path is free."""
    return {**container, "volumeMounts": complete_items(container.get("volumeMounts"), mounts, _BY_NAME, _BY_PATH)}


def mount_path(container: Part, volume: str, default: str) -> str:
    """The path where the container mounts the volume, or else `default`."""
    mounts = container.get("volumeMounts") or ()
    return next((str(each["mountPath"]) for each in mounts if each.get("name") == volume), default)


# Specs of pods


def container_of(pod_spec: Part, name: str) -> Part | None:
    return next((each for each in pod_spec.get("containers") or () if each.get("name") == name), None)


def with_changed_container(pod_spec: Part, name: str, change: Callable[[Part], Part]) -> dict[str, Any]:
    """Changes the container of that name, if the pod has one."""
    containers = [change(each) if each.get("name") == name else each for each in pod_spec.get("containers") or ()]
    return {**pod_spec, "containers": containers}


def with_missing_volumes(pod_spec: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    """Adds volumes whose name the pod does not have yet."""
    return {**pod_spec, "volumes": complete_items(pod_spec.get("volumes"), volumes, _BY_NAME)}


# Templates


def spec_of(template: Part) -> Part:
    """The pod spec of a template; empty if there is none."""
    spec: Part = template.get("spec") or {}
    return spec


def with_container(template: Part, name: str, change: Callable[[Part], Part] = dict) -> dict[str, Any]:
    """Changes the container of that name, which is added first if the template has none."""
    spec = spec_of(template)
    if container_of(spec, name) is None:
        spec = {**spec, "containers": [*(spec.get("containers") or ()), {"name": name}]}
    return {**template, "spec": with_changed_container(spec, name, change)}


def with_spec(template: Part, **fields: Any) -> dict[str, Any]:
    """Sets fields of the pod spec, except to empty values."""
    given = {name: value for name, value in fields.items() if value}
    return {**template, "spec": {**spec_of(template), **given}}


def with_volumes(template: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    return with_spec(template, volumes=override_items(spec_of(template).get("volumes"), volumes))
