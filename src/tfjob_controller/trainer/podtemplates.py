"""Pod templates as they are put together from several sources; frameworks use this too.

There are two ways to add. What says `with_` overrides: the new wins over what has its name. What says `with_missing_`
completes: what the pod has already stays. Pure: what is given is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Part = Mapping[str, Any]
# What identifies the items of a pod's lists.
_BY_NAME, _BY_PATH = "name", "mountPath"


def overridden(first: Iterable[Part] | None, second: Iterable[Part] | None, key: str = _BY_NAME) -> list[Any]:
    """The first's items, each replaced by the second's of the same name, then what is new."""
    news = {each.get(key): each for each in second or ()}
    kept = [news.pop(each.get(key), each) for each in first or ()]
    return [*kept, *news.values()]


def completed(first: Iterable[Part] | None, second: Iterable[Part], *keys: str) -> list[Any]:
    """The first's items, then those of the second that share none of these keys with one of them."""
    kept = list(first or ())
    taken = {(key, each.get(key)) for each in kept for key in keys}
    return kept + [each for each in second if not any((key, each[key]) in taken for key in keys)]


# Containers


def with_env(container: Part, env: Iterable[Part]) -> dict[str, Any]:
    """A variable that stands there already gets the new value, at the end: it may use those before it."""
    added = list(env)
    names = {each.get("name") for each in added}
    kept = [each for each in container.get("env") or () if each.get("name") not in names]
    return {**container, "env": [*kept, *added]} if kept or added else dict(container)


def with_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    """What is mounted at the same path already gives way."""
    joined = overridden(container.get("volumeMounts"), mounts, _BY_PATH)
    return {**container, "volumeMounts": joined} if joined else dict(container)


def with_missing_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    """A mount is left out if its volume is mounted already, or its path taken."""
    return {**container, "volumeMounts": completed(container.get("volumeMounts"), mounts, _BY_NAME, _BY_PATH)}


def mount_path(container: Part, volume: str, default: str) -> str:
    """Where the container mounts the volume itself, else `default`."""
    mounts = container.get("volumeMounts") or ()
    return next((str(each["mountPath"]) for each in mounts if each.get("name") == volume), default)


# Specs of pods


def container_of(pod_spec: Part, name: str) -> Part | None:
    return next((each for each in pod_spec.get("containers") or () if each.get("name") == name), None)


def with_changed_container(pod_spec: Part, name: str, change: Callable[[Part], Part]) -> dict[str, Any]:
    """The container of that name, changed; a pod without it stays as it is."""
    containers = [change(each) if each.get("name") == name else each for each in pod_spec.get("containers") or ()]
    return {**pod_spec, "containers": containers}


def with_missing_volumes(pod_spec: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    """A volume whose name the pod has already is left out."""
    return {**pod_spec, "volumes": completed(pod_spec.get("volumes"), volumes, _BY_NAME)}


# Templates


def spec_of(template: Part) -> Part:
    """Empty if there is none."""
    spec: Part = template.get("spec") or {}
    return spec


def with_container(template: Part, name: str, change: Callable[[Part], Part] = dict) -> dict[str, Any]:
    """The template with its container of that name changed; it is made first if there is none."""
    spec = spec_of(template)
    if container_of(spec, name) is None:
        spec = {**spec, "containers": [*(spec.get("containers") or ()), {"name": name}]}
    return {**template, "spec": with_changed_container(spec, name, change)}


def with_spec(template: Part, **fields: Any) -> dict[str, Any]:
    """With these fields of the pod's spec set, where they are anything."""
    given = {name: value for name, value in fields.items() if value}
    return {**template, "spec": {**spec_of(template), **given}}


def with_volumes(template: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    return with_spec(template, volumes=overridden(spec_of(template).get("volumes"), volumes))
