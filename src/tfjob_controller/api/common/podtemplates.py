"""The pod templates of jobs and runtimes: their shape, and what the controller's config file adds to them.

The CRDs leave most of a template open, so the parts that the controller reads or adds to are checked here. A container
that requests an accelerator gets the volumes, mounts and variables that the config file names for it; what the template
already has under the same name or path is the user's choice and stays. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tfjob_controller.util.keyedlists import complete_items

if TYPE_CHECKING:
    # It loads YAML, which the client does without.
    from tfjob_controller.api.controllerconfig import Accelerator

# The parts of a template that the controller reads or adds to: path, and whether it is a list of objects rather than
# an object. Parents come first.
_SHAPES = (
    ("metadata", False),
    ("metadata.labels", False),
    ("metadata.annotations", False),
    ("spec", False),
    ("spec.volumes", True),
    ("spec.containers", True),
    ("spec.initContainers", True),
    ("spec.nodeSelector", False),
    ("spec.securityContext", False),
    ("spec.tolerations", True),
    ("spec.imagePullSecrets", True),
)
_CONTAINER_SHAPES = (
    ("env", True),
    ("envFrom", True),
    ("volumeMounts", True),
    ("restartPolicyRules", True),
    ("resources", False),
    ("resources.limits", False),
    ("resources.requests", False),
    ("securityContext", False),
)


def template_problem(template: dict[str, Any]) -> str | None:
    """The first problem with the shape of a template, without the template's own path; None for a valid one."""
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
    """Problems of shape. Only the first one is meaningful, since later paths lead through earlier ones."""
    for path, is_list in shapes:
        value = _at(root, path)
        if is_list and not _is_list_of_objects(value):
            yield f"{at}.{path}: expected a list of objects"
        elif not is_list and not isinstance(value, dict | None):
            yield f"{at}.{path}: expected an object"


def _at(root: dict[str, Any], path: str) -> Any:
    """The value at a path; None if a part of the path is absent."""
    value: Any = root
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def apply_accelerators(
    template: Mapping[str, Any], accelerators: Mapping[str, Accelerator], container: str
) -> dict[str, Any]:
    """The pod template with volumes, mounts and variables of every configured resource that the container requests."""
    for resource, accelerator in accelerators.items():
        if _requests(template, resource, container):
            template = _with_accelerator(template, accelerator, container)
    return dict(template)


def _requests(template: Mapping[str, Any], resource: str, name: str) -> bool:
    """Whether the container has a limit or request of the resource that is not zero."""
    return any(
        str(((container.get("resources") or {}).get(part) or {}).get(resource, 0)) != "0"
        for container in containers_of(template)
        if container.get("name") == name
        for part in ("limits", "requests")
    )


def _with_accelerator(template: Mapping[str, Any], accelerator: Accelerator, container: str) -> dict[str, Any]:
    spec = template["spec"]
    added = [{"name": volume.name, "hostPath": {"path": volume.host_path}} for volume in accelerator.volumes]
    containers = [
        _container_with(each, accelerator) if each.get("name") == container else each for each in spec["containers"]
    ]
    volumes = complete_items(spec.get("volumes"), added, "name")
    return {**template, "spec": {**spec, "containers": containers} | ({"volumes": volumes} if volumes else {})}


def _container_with(container: Mapping[str, Any], accelerator: Accelerator) -> dict[str, Any]:
    mounts = [{"name": volume.name, "mountPath": volume.mount_path} for volume in accelerator.volumes]
    variables = [{"name": variable.name, "value": variable.value} for variable in accelerator.env_vars]
    added = {
        "volumeMounts": complete_items(container.get("volumeMounts"), mounts, "mountPath"),
        "env": complete_items(container.get("env"), variables, "name"),
    }
    return {**container, **{name: value for name, value in added.items() if value}}
