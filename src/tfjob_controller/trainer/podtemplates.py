"""Pod templates as they are put together from several sources: later ones win, lists are joined by name.

Pure: what is given is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Part = Mapping[str, Any]
# What identifies the items of a pod's lists.
_BY_NAME, _BY_PATH = "name", "mountPath"


def joined(first: Iterable[Part] | None, second: Iterable[Part] | None, key: str = _BY_NAME) -> list[Any]:
    """The first's items, each replaced by the second's of the same name, then what is new."""
    news = {each.get(key): each for each in second or ()}
    kept = [news.pop(each.get(key), each) for each in first or ()]
    return [*kept, *news.values()]


def with_env(container: Part, env: Iterable[Part]) -> dict[str, Any]:
    """A variable that stands there already gets the new value, at the end: it may use those before it."""
    added = list(env)
    names = {each.get("name") for each in added}
    kept = [each for each in container.get("env") or () if each.get("name") not in names]
    return {**container, "env": [*kept, *added]} if kept or added else dict(container)


def with_mounts(container: Part, mounts: Iterable[Part]) -> dict[str, Any]:
    return {**container, "volumeMounts": joined(container.get("volumeMounts"), mounts, _BY_PATH)}


def with_container(template: Part, name: str, change: Callable[[Part], Part]) -> dict[str, Any]:
    """The template with its container of that name changed; it is made first if there is none."""
    spec = template.get("spec") or {}
    containers = list(spec.get("containers") or ())
    if all(each.get("name") != name for each in containers):
        containers.append({"name": name})
    changed = [change(each) if each.get("name") == name else each for each in containers]
    return {**template, "spec": {**spec, "containers": changed}}


def with_spec(template: Part, **fields: Any) -> dict[str, Any]:
    """With these fields of the pod's spec set, where they are anything."""
    given = {name: value for name, value in fields.items() if value}
    return {**template, "spec": {**(template.get("spec") or {}), **given}}


def with_volumes(template: Part, volumes: Iterable[Part]) -> dict[str, Any]:
    return with_spec(template, volumes=joined((template.get("spec") or {}).get("volumes"), volumes))


def container_named(template: Part, name: str) -> Part:
    """Empty if there is none."""
    containers = (template.get("spec") or {}).get("containers") or ()
    return next((each for each in containers if each.get("name") == name), {})
