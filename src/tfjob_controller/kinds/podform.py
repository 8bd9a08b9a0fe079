"""How the dashboard's form for a new job reads and writes resources, variables and volumes of a container.

The form shows what it can write: entries of a list that it cannot show in one line are described instead, and stay in
their place when the others change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tfjob_controller.api.common.accelerators import is_accelerator
from tfjob_controller.kinds.kindform import (
    LABELS,
    UNPRINTABLE,
    FormError,
    Manifest,
    mapping_at,
    mappings_at,
    number_at,
    put,
    put_at,
)
from tfjob_controller.kube.names import namespace_violation

GPU = "nvidia.com/gpu"
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108
_SHARED_MEMORY = "shared-memory"
_REQUESTS, _LIMITS = "requests", "limits"
_MAX_SHOWN = 200

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of each node, or other accelerators."""

    count: int
    resource: str = GPU


class Variable(NamedTuple):
    name: str
    value: str


class ClaimMount(NamedTuple):
    """A persistent volume claim that is mounted at a path."""

    claim: str
    path: str
    read_only: bool = False


def quantity_at(parent: Mapping[str, Any], key: str, resource: str) -> str:
    """The request of a resource, or else its limit; empty if there is neither."""
    resources = mapping_at(parent, key, field=resource)
    amounts = (mapping_at(resources, part, field=resource).get(resource) for part in (_REQUESTS, _LIMITS))
    amount = next((amount for amount in amounts if amount is not None), "")
    if isinstance(amount, bool) or not isinstance(amount, (str, int, float)) or UNPRINTABLE.search(str(amount)):
        raise FormError(resource, f"{LABELS[resource]}: must be a quantity, such as 4 or 16Gi; correct it in the YAML.")
    return str(amount)


def put_quantity(parent: Manifest, key: str, resource: str, text: str, new: Sequence[str]) -> None:
    """Sets the request and the limit that had the value of `quantity_at`, or `new` ones if there are none.

    An empty text removes both.
    """
    shown, resources = quantity_at(parent, key, resource), mapping_at(parent, key, field=resource)
    existing = [part for part in (_REQUESTS, _LIMITS) if resource in mapping_at(resources, part, field=resource)]
    same = [part for part in existing if str(resources[part][resource]) == shown]
    for part in same if text and existing else existing or new:
        put_at(parent, (key, part, resource), _amount(text))


def _amount(text: str) -> int | str | None:
    """A quantity as people write it in YAML: a number without quotes."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 16 and str(int(text)) == text
    return int(text) if is_number else text or None


def gpus_at(parent: Mapping[str, Any], key: str) -> Gpus | None:
    """The accelerators of the resources at a key: their limit, or else their request; NVIDIA's, or else the first."""
    resources = mapping_at(parent, key, field="gpus")
    amounts = {
        name: amount
        for part in (_REQUESTS, _LIMITS)
        for name, amount in mapping_at(resources, part, field="gpus").items()
        if is_accelerator(name) and amount is not None
    }
    name = GPU if GPU in amounts else next(iter(amounts), "")
    amount = amounts.get(name)
    if isinstance(amount, str) and amount.isascii() and amount.isdecimal():
        # More digits are beyond any limit, too.
        amount = int(amount[:9])
    count = number_at({name: amount}, name, "gpus")
    return None if count is None else Gpus(count, name)


def put_gpus(parent: Manifest, key: str, gpus: Gpus | None) -> None:
    """Sets the limit, and the request if there is one; None removes both."""
    before = gpus_at(parent, key)
    requests = mapping_at(mapping_at(parent, key, field="gpus"), _REQUESTS, field="gpus")
    has_request = before is not None and before.resource in requests
    if before is not None and (gpus is None or before.resource != gpus.resource):
        for part in (_REQUESTS, _LIMITS):
            put_at(parent, (key, part, before.resource), None)
    if gpus is not None:
        for part in (_REQUESTS, _LIMITS) if has_request else (_LIMITS,):
            put_at(parent, (key, part, gpus.resource), gpus.count)


def env_at(parent: Mapping[str, Any]) -> tuple[Variable, ...]:
    """The variables with a value of one line."""
    return tuple(filter(None, map(_variable_of, mappings_at(parent, "env", field="env"))))


def other_env_at(parent: Mapping[str, Any]) -> tuple[str, ...]:
    """A description of each of the other variables."""
    return tuple(
        _described(entry.get("name"), entry.get("valueFrom", entry.get("value")))
        for entry in mappings_at(parent, "env", field="env")
        if _variable_of(entry) is None
    )


def put_env(parent: Manifest, variables: Sequence[Variable]) -> None:
    entries = mappings_at(parent, "env", field="env")
    wanted = [{"name": variable.name, "value": variable.value} for variable in variables]
    put(parent, "env", _replaced(entries, wanted, lambda entry: _variable_of(entry) is not None))


def _variable_of(entry: Mapping[str, Any]) -> Variable | None:
    name, value = entry.get("name"), entry.get("value") or ""
    if not isinstance(name, str) or not isinstance(value, str) or not entry.keys() <= {"name", "value"}:
        return None
    is_line = name and name == name.strip() and "=" not in name and not _has_breaks(name + value)
    return Variable(name, value) if is_line else None


def volumes_at(pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[ClaimMount, ...]:
    """The claims that a container mounts; `pod` has the volumes."""
    return tuple(mount for _, mount in _mounts(pod, container) if isinstance(mount, ClaimMount))


def shared_memory_at(pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """The size of the memory at /dev/shm; empty for that of the container runtime."""
    return next((mount for _, mount in _mounts(pod, container) if isinstance(mount, str)), "")


def other_volumes_at(pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[str, ...]:
    """A description of each of the other mounts of a container."""
    volumes = _volumes_by_name(pod)
    return tuple(
        _described(entry.get("mountPath"), {**volumes.get(_name_of(entry), {}), **entry})
        for entry, mount in _mounts(pod, container)
        if mount is None
    )


def put_volumes(pod: Manifest, container: Manifest, mounts: Sequence[ClaimMount]) -> None:
    existing = {mount: entry for entry, mount in _mounts(pod, container) if isinstance(mount, ClaimMount)}
    wanted = [existing.get(mount) or _new_mount(pod, mount) for mount in mounts]
    _put_mounts(pod, container, wanted, lambda entry: entry in existing.values())


def put_shared_memory(pod: Manifest, container: Manifest, size: str) -> None:
    existing = [entry for entry, mount in _mounts(pod, container) if isinstance(mount, str)]
    if existing and size:
        _volumes_by_name(pod)[existing[0]["name"]]["emptyDir"]["sizeLimit"] = size
        return
    wanted = []
    if size:
        name = _add_volume(pod, _SHARED_MEMORY, {"emptyDir": {"medium": "Memory", "sizeLimit": size}})
        wanted = [{"name": name, "mountPath": SHARED_MEMORY_PATH}]
    _put_mounts(pod, container, wanted, lambda entry: entry in existing)


def _mounts(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[tuple[Manifest, ClaimMount | str | None]]:
    """Each mount with what the form shows of it: a claim, the size of shared memory, or None."""
    volumes = _volumes_by_name(pod)
    for entry in mappings_at(container, "volumeMounts", field="volumes"):
        volume = volumes.get(_name_of(entry), {})
        is_plain = entry.keys() <= {"name", "mountPath", "readOnly"} and isinstance(entry.get("readOnly", False), bool)
        mount = _claim_mount(volume, entry) or _shared_memory(volume, entry) or None
        yield entry, mount if is_plain else None


def _claim_mount(volume: Mapping[str, Any], entry: Mapping[str, Any]) -> ClaimMount | None:
    source, path = volume.get("persistentVolumeClaim"), entry.get("mountPath")
    if volume.keys() != {"name", "persistentVolumeClaim"} or not isinstance(source, dict) or [*source] != ["claimName"]:
        return None
    claim = source["claimName"]
    if not isinstance(claim, str) or not isinstance(path, str):
        return None
    is_line = claim and path.startswith("/") and not any(":" in text or _has_breaks(text) for text in (claim, path))
    is_trimmed = (claim, path) == (claim.strip(), path.strip())
    return ClaimMount(claim, path, entry.get("readOnly") is True) if is_line and is_trimmed else None


def _shared_memory(volume: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    if entry.get("mountPath") != SHARED_MEMORY_PATH or "readOnly" in entry:
        return ""
    match volume.get("emptyDir"):
        case {"medium": "Memory", "sizeLimit": str(size), **others} if not others and not _has_breaks(size):
            return size
    return ""


def _volumes_by_name(pod: Mapping[str, Any]) -> dict[str, Manifest]:
    return {_name_of(volume): volume for volume in mappings_at(pod, "volumes", field="volumes")}


def _name_of(entry: Mapping[str, Any]) -> str:
    """Empty for what is no name."""
    name = entry.get("name")
    return name if isinstance(name, str) else ""


def _new_mount(pod: Manifest, mount: ClaimMount) -> Manifest:
    source = {"persistentVolumeClaim": {"claimName": mount.claim}}
    names = (name for name, volume in _volumes_by_name(pod).items() if volume == {"name": name, **source})
    name = next(names, "") or _add_volume(pod, mount.claim, source)
    return {"name": name, "mountPath": mount.path, **({"readOnly": True} if mount.read_only else {})}


def _add_volume(pod: Manifest, wish: str, source: Manifest) -> str:
    """Adds a volume. Its name is the wish, unless that is none or taken."""
    taken = _volumes_by_name(pod)
    is_free = not namespace_violation(wish) and wish not in taken
    name = wish if is_free else next(f"volume-{n}" for n in range(len(taken) + 1) if f"volume-{n}" not in taken)
    pod["volumes"] = [*mappings_at(pod, "volumes", field="volumes"), {"name": name, **source}]
    return name


def _put_mounts(pod: Manifest, container: Manifest, wanted: Sequence[Manifest], is_old: Callable[[Any], bool]) -> None:
    """Replaces the mounts that are old, and removes volumes that only these have used."""
    entries = mappings_at(container, "volumeMounts", field="volumes")
    old = {_name_of(entry) for entry in entries if is_old(entry)}
    put(container, "volumeMounts", _replaced(entries, wanted, is_old))
    lists = (mappings_at(pod, kind, field="volumes") for kind in ("containers", "initContainers"))
    containers = (container, *(each for containers in lists for each in containers))
    used = {_name_of(mount) for each in containers for mount in mappings_at(each, "volumeMounts", field="volumes")}
    volumes = mappings_at(pod, "volumes", field="volumes")
    put(pod, "volumes", [volume for volume in volumes if _name_of(volume) not in old - used])


def _replaced(entries: Sequence[EntryT], wanted: Sequence[EntryT], is_old: Callable[[EntryT], bool]) -> list[EntryT]:
    """The entries with the wanted ones in the places of old ones; the rest of them follows."""
    left = iter(wanted)
    replaced: list[EntryT] = []
    for entry in entries:
        replaced += [entry] if not is_old(entry) else [new for new in [next(left, None)] if new is not None]
    return [*replaced, *left]


def _has_breaks(text: str) -> bool:
    return "\n" in text or bool(UNPRINTABLE.search(text))


def _described(name: Any, value: Any) -> str:
    """An entry in one line: its name, and what else it has."""
    return " ".join(UNPRINTABLE.sub("?", f"{name}: {value}").split())[:_MAX_SHOWN]
