"""Gives the containers that ask for an accelerator what the controller's config file says they need.

Pure: a template goes in, another comes out, and the first stays as it was. Only the training container is looked at and
changed. What a template already has under the same name or path is the user's own choice and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfjob_controller.api.controllerconfig import Accelerator
from tfjob_controller.api.tfjob import CONTAINER_NAME

Template = Mapping[str, Any]


def apply_accelerators(
    template: Template, accelerators: Mapping[str, Accelerator], container: str = CONTAINER_NAME
) -> dict[str, Any]:
    """The pod template with volumes, mounts and variables of every configured resource that the container asks for."""
    for resource, accelerator in accelerators.items():
        if _asks_for(template, resource, container):
            template = _with(template, accelerator, container)
    return dict(template)


def _asks_for(template: Template, resource: str, name: str) -> bool:
    """In limits or in requests, with any amount that is not zero."""
    return any(
        str(((container.get("resources") or {}).get(part) or {}).get(resource, 0)) != "0"
        for container in _containers(template)
        if container.get("name") == name
        for part in ("limits", "requests")
    )


def _containers(template: Template) -> list[Mapping[str, Any]]:
    return (template.get("spec") or {}).get("containers") or []


def _with(template: Template, accelerator: Accelerator, container: str) -> dict[str, Any]:
    spec = template["spec"]
    added = [{"name": each.name, "hostPath": {"path": each.host_path}} for each in accelerator.volumes]
    containers = [
        _equipped(each, accelerator) if each.get("name") == container else each for each in spec["containers"]
    ]
    volumes = _joined(spec.get("volumes"), added, "name")
    return {**template, "spec": {**spec, "containers": containers} | ({"volumes": volumes} if volumes else {})}


def _equipped(container: Mapping[str, Any], accelerator: Accelerator) -> dict[str, Any]:
    mounts = [{"name": each.name, "mountPath": each.mount_path} for each in accelerator.volumes]
    variables = [{"name": each.name, "value": each.value} for each in accelerator.env_vars]
    added = {
        "volumeMounts": _joined(container.get("volumeMounts"), mounts, "mountPath"),
        "env": _joined(container.get("env"), variables, "name"),
    }
    return {**container, **{name: value for name, value in added.items() if value}}


def _joined(
    present: Iterable[Mapping[str, Any]] | None, added: Iterable[Mapping[str, Any]], key: str
) -> list[Mapping[str, Any]]:
    """What is there, then what is not there yet."""
    kept = list(present or ())
    taken = {each.get(key) for each in kept}
    return kept + [each for each in added if each[key] not in taken]
