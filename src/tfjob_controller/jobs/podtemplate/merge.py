"""Functions that combine pod templates from several sources. Frameworks use them as well.

Functions `with_…` override: a new item takes the place of one of the same name. Functions `with_missing_…` complete:
the items of the pod stay. Pure: arguments are never changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tfjob_controller.util.keyedlists import complete_items, item_key

Part = Mapping[str, Any]
# What identifies the items of a pod's lists.
_BY_NAME, _BY_PATH = "name", "mountPath"
# As third_party/forked/golang/expansion of Kubernetes reads a variable's value: `$$` is an escaped `$`.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def override_items(first: Iterable[Part] | None, second: Iterable[Part] | None, key: str = _BY_NAME) -> list[Any]:
    """The items of `first`, each replaced by that of `second` with the same key, then the new items of `second`."""
    new = {item_key(item, key): item for item in second or ()}
    # An item that nothing overrides is never merged with another of `first`, so its position identifies it.
    places = (
        (item_key(item, key) if item_key(item, key) in new else (position,), item)
        for position, item in enumerate(first or ())
    )
    return list((dict(places) | new).values())


# Containers


def with_env(container: Part, env: Iterable[Part]) -> dict[str, Any]:
    """Sets variables. One that exists keeps its place, where later ones may refer to it; new ones come last.

    A variable can only refer to earlier ones. What the new value of an existing variable refers to is moved before it.
    """
    changes = list(env)
    present = {variable.get("name") for variable in container.get("env") or ()}
    merged = override_items(container.get("env"), changes)
    for variable in changes:
        if variable.get("name") in present and _references(variable):
            merged = _with_references_first(merged, variable.get("name"))
    return {**container, "env": merged} if merged else dict(container)


def _with_references_first(env: list[Part], name: object) -> list[Part]:
    """The variables, with those that this one refers to before it, directly or through others, in the same order."""
    references = {variable.get("name"): _references(variable) for variable in env}
    needed: set[object] = set()
    pending = references[name]
    while pending:
        needed |= pending
        pending = set[object]().union(*(references.get(reference, ()) for reference in pending)) - needed
    at = next(position for position, variable in enumerate(env) if variable.get("name") == name)
    # A stable sort: False comes before True.
    return [*env[:at], *sorted(env[at:], key=lambda variable: variable.get("name") not in needed)]


def _references(variable: Part) -> set[object]:
    """The names in `$(NAME)` of the variable's value, without its own."""
    return {match[1] for match in _REFERENCE.finditer(str(variable.get("value") or ""))} - {None, variable.get("name")}


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
    return next((str(mount["mountPath"]) for mount in mounts if mount.get("name") == volume), default)


# Specs of pods


def container_of(pod_spec: Part, name: str) -> Part | None:
    return next((container for container in pod_spec.get("containers") or () if container.get("name") == name), None)


def with_changed_container(pod_spec: Part, name: str, change: Callable[[Part], Part]) -> dict[str, Any]:
    """Changes the container of that name, if the pod has one."""
    containers = [
        change(container) if container.get("name") == name else container
        for container in pod_spec.get("containers") or ()
    ]
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


# Names


def name_problems(template: Part, completed: Part, *fields: tuple[str, Part]) -> Iterator[str]:
    """Yields the names in a template that the controller needs for what it has added to the `completed` one.

    Two containers of a pod cannot have the same name, and a volume takes the place of another one. Each of `fields` is
    a part of the template's spec with its path; the last one that has the name is the one to correct.
    """
    own, made = spec_of(template), spec_of(completed)
    added = container_names(made) - container_names(own)
    given = {volume.get(_BY_NAME): volume for volume in own.get("volumes") or ()}
    replaced = {
        volume[_BY_NAME] for volume in made.get("volumes") or () if given.get(volume[_BY_NAME], volume) != volume
    }
    for kind, what, names in (
        ("containers", "container", added),
        ("initContainers", "container", added),
        ("volumes", "volume", replaced),
    ):
        for path, spec in reversed(fields):
            for index, item in enumerate(spec.get(kind) or ()):
                if item.get(_BY_NAME) in names:
                    name = item[_BY_NAME]
                    yield (
                        f"{path}.{kind}[{index}].name: {name} is the name of a {what} that the controller adds: "
                        "rename it"
                    )


def container_names(pod_spec: Part) -> Counter[object]:
    """Returns how often each name is that of a container or an init container."""
    return Counter(
        container.get(_BY_NAME) for kind in ("containers", "initContainers") for container in pod_spec.get(kind) or ()
    )
