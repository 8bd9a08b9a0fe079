"""Containers that transfer data, and the volumes of claims that storage URIs name.

They run this project's image with the credentials of the storage: initializers, exporters, and the containers of
checkpoints. Pure: arguments are never changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.common.storage import SecretRef
from tfjob_controller.jobs.naming import MAX_LABEL
from tfjob_controller.jobs.podtemplate.merge import Part, with_env

STORAGE_URI = "STORAGE_URI"
_CLAIM = "pvc://"
# Digits of the hash in a volume's name that cannot contain the whole name of its claim.
_DIGEST = 8
# What Pod Security `restricted` demands. Initializers and exporters have it, whatever the pod's own allows.
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def security_context_beside(training: Part, pod: Part) -> dict[str, Any]:
    """The security context of a container that reads what the training container writes: it runs as the same user.

    Programs write files that only their user may read, as safetensors does. If neither the container nor the pod's
    spec sets the user, it is the image's, which is root in most images for training. Root without any
    capability may read its own files and those that everyone may read, no others.
    """
    own = training.get("securityContext") or {}
    effective = {**(pod.get("securityContext") or {}), **own}
    user = {name: own[name] for name in ("runAsUser", "runAsGroup") if own.get(name) is not None}
    if effective.get("runAsUser") is None and not effective.get("runAsNonRoot"):
        user = {**user, "runAsUser": 0}
    is_root = user.get("runAsUser", effective.get("runAsUser")) == 0
    return {**RESTRICTED, **user, "runAsNonRoot": not is_root}


def security_context_after(training: Part, pod: Part) -> dict[str, Any]:
    """The same for a container in a later pod: it inherits nothing from the training pod, so it is complete."""
    inherited = {
        name: value
        for name, value in (pod.get("securityContext") or {}).items()
        if name in ("runAsUser", "runAsGroup") and value is not None
    }
    own = {**inherited, **(training.get("securityContext") or {})}
    return security_context_beside({"securityContext": own}, pod)


@dataclass(frozen=True, slots=True)
class StorageContainer:
    """An initializer or exporter, as a pod or an init container. `role` is also its name."""

    role: str
    command: tuple[str, ...]
    uri: str
    env: Sequence[Part]
    secret: SecretRef | None


def storage_container(storage: StorageContainer, base: Part, image: str) -> dict[str, Any]:
    """The container of an initializer or exporter. The runtime's fields win, except for arguments and environment."""
    env_from = [{"secretRef": {"name": storage.secret.name}}] if storage.secret is not None else []
    container = {
        "name": storage.role,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": RESTRICTED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **base,
        "args": list(storage.command),
        "envFrom": [*(base.get("envFrom") or ()), *env_from],
    }
    return with_env(container, [*storage.env, {"name": STORAGE_URI, "value": storage.uri}])


def is_claim(uri: str) -> bool:
    return uri.startswith(_CLAIM)


def claim_mount(path: str, claim: str, folder: str) -> dict[str, Any]:
    mount = {"name": claim_volume(claim), "mountPath": path}
    return {**mount, "subPath": folder} if folder else mount


def claim_volume(claim: str) -> str:
    """A unique volume name for a claim. Volume names are DNS labels: without dots, and at most 63 characters long."""
    name = f"claim-{claim}"
    if "." not in name and len(name) <= MAX_LABEL:
        return name
    digest = hashlib.sha256(claim.encode()).hexdigest()[:_DIGEST]
    return f"{name.replace('.', '-')[: MAX_LABEL - _DIGEST - 1]}-{digest}"


def claim_of(uri: str) -> tuple[str, str]:
    """The claim and the folder of a pvc:// URI."""
    claim, _, folder = uri.removeprefix(_CLAIM).partition("/")
    return claim, folder.strip("/")
