"""The pod templates that jobs and runtimes bring: what must be so before anything is added to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The parts of a template that the controller reads or adds to must be what it takes them for: the CRD leaves most of
# them open. (path, is a list of objects, else an object); parents first.
_SHAPES = (
    ("metadata", False),
    ("metadata.labels", False),
    ("metadata.annotations", False),
    ("spec", False),
    ("spec.volumes", True),
    ("spec.containers", True),
    ("spec.initContainers", True),
    ("spec.nodeSelector", False),
    ("spec.tolerations", True),
    ("spec.imagePullSecrets", True),
)
_CONTAINER_SHAPES = (
    ("env", True),
    ("envFrom", True),
    ("volumeMounts", True),
    ("resources", False),
    ("resources.limits", False),
    ("resources.requests", False),
)


def template_problem(template: dict[str, Any]) -> str | None:
    """What is wrong with the parts that are read or added to, beginning with what follows the template's path."""
    return next(_problems(template), None)


def containers_of(template: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return ((template or {}).get("spec") or {}).get("containers") or []


def has_container_named(template: Mapping[str, Any] | None, name: str) -> bool:
    return any(container.get("name") == name for container in containers_of(template))


def _problems(template: dict[str, Any]) -> Iterator[str]:
    yield from _shape_problems("", template, _SHAPES)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(_at(template, f"spec.{kind}") or ()):
            yield from _shape_problems(f".spec.{kind}[{index}]", container, _CONTAINER_SHAPES)
    for index, container in enumerate(containers_of(template)):
        if not isinstance(container.get("name"), str):
            yield f".spec.containers[{index}].name: a name is required"


def _shape_problems(at: str, root: dict[str, Any], shapes: tuple[tuple[str, bool], ...]) -> Iterator[str]:
    """Stops to make sense after the first problem, since a path goes through what comes before it."""
    for path, is_list in shapes:
        value = _at(root, path)
        if is_list and not _is_list_of_objects(value):
            yield f"{at}.{path}: expected a list of objects"
        elif not is_list and not isinstance(value, dict | None):
            yield f"{at}.{path}: expected an object"


def _at(root: dict[str, Any], path: str) -> Any:
    """What stands at a path, None where a part of it is absent."""
    value: Any = root
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))
