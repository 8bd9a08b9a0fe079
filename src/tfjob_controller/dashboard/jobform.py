"""The fields of the form for a new job, and how they are read from a manifest and written into one.

Writing changes a field of the manifest only if the form's value differs from what is read from it, so that everything
else survives. The replicas of a TFJob share one program: the form shows that of the workers (of the master without
workers), and a change applies to each MASTER and WORKER whose value was the same before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from tfjob_controller.client.kinds import KINDS as CLIENT_KINDS
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.util.text import CONTROL_CHARACTERS

Manifest: TypeAlias = dict[str, Any]
GPU = "nvidia.com/gpu"
# Tab and line feed are text.
UNPRINTABLE = re.compile(f"[\x00-\x08\x0b-\x1f{CONTROL_CHARACTERS}]")
_CONTAINER = "tensorflow"
_MAX_VALUES, _MAX_DEPTH = 20_000, 60
_MAX_NUMBER = 2**63 - 1
# The bounds of an elastic job, by kind.
_BOUNDS = {"TFJob": ("autoscaling", "minWorkers", "maxWorkers"), "TrainJob": ("elasticPolicy", "minNodes", "maxNodes")}
# The kinds whose fields the form knows.
KINDS: Mapping[str, ClientKind] = {kind.resource.kind: kind for kind in CLIENT_KINDS if kind.resource.kind in _BOUNDS}


class FormError(Exception):
    """A manifest that the form cannot show, in one sentence with the remedy. `field` is the form's, or empty."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class JobForm:
    """What the form shows. Empty strings and None stand for fields that the manifest does not have.

    `nodes` is the number of workers of a TFJob, 0 without workers, and is never None there; `framework` is always
    empty there. `gpus` are those of each node (each master and worker), `minimum` and `maximum` the elastic bounds.
    """

    kind: str
    name: str = ""
    namespace: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    framework: str = ""
    nodes: int | None = None
    gpus: int | None = None
    gang: bool | None = None
    minimum: int | None = None
    maximum: int | None = None

    @staticmethod
    def from_manifest(manifest: Mapping[str, Any]) -> JobForm:
        """Raises `FormError` for a kind that is not a job's, and for values of a wrong type."""
        kind = kind_of(manifest)
        metadata, spec = _mapping(manifest, "metadata", "name"), _mapping(manifest, "spec", "")
        bounds, low, high = _BOUNDS[kind]
        elastic = _mapping(spec, bounds, "minimum")
        form: dict[str, Any] = {
            "name": _string(metadata, "name", "name"),
            "namespace": _string(metadata, "namespace", "namespace"),
            "gang": _flag(_mapping(spec, "gang", "gang"), "enabled", "gang"),
            "minimum": _number(elastic, low, "minimum"),
            "maximum": _number(elastic, high, "maximum"),
        }
        program = _tfjob_program(spec) if kind == "TFJob" else _trainjob_program(spec)
        return JobForm(kind=kind, **form, **program)

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """A copy of the manifest with the form's values. `manifest` is not changed.

        Another kind begins a new manifest with the same metadata. Raises `FormError` as `from_manifest` does.
        """
        found = plain_copy(manifest)
        if not found or kind_of(found) != self.kind:
            metadata = found.get("metadata")
            found = new_manifest(self.kind)
            if isinstance(metadata, dict):
                found["metadata"] = metadata
        before = JobForm.from_manifest(found)
        changed = {field.name for field in fields(JobForm) if getattr(self, field.name) != getattr(before, field.name)}
        spec = _section(found, "spec")
        for name in ("name", "namespace"):
            if name in changed:
                _put(_section(found, "metadata"), name, getattr(self, name) or None)
        if "gang" in changed:
            _put_below(spec, "gang", "enabled", self.gang)
        bounds, low, high = _BOUNDS[self.kind]
        if "minimum" in changed:
            _put_below(spec, bounds, low, self.minimum)
        if "maximum" in changed:
            _put_below(spec, bounds, high, self.maximum)
        write = self._write_tfjob if self.kind == "TFJob" else self._write_trainjob
        write(spec, before, changed)
        return found

    def _write_trainjob(self, spec: Manifest, before: JobForm, changed: set[str]) -> None:
        if "framework" in changed:
            _put(spec, "framework", self.framework or None)
        if "nodes" in changed:
            _put(spec, "numNodes", self.nodes)
            if isinstance(trainer := spec.get("trainer"), dict):
                trainer.pop("numNodes", None)  # the other name of the same field
        if changed & {"image", "command", "gpus"}:
            trainer = _section(spec, "trainer")
            if "image" in changed:
                _put(trainer, "image", self.image or None)
            if "command" in changed:
                _put(trainer, "command", list(self.command) or None)
            if "gpus" in changed:
                _put_gpus(trainer, "resourcesPerNode", self.gpus)
            if not trainer:
                del spec["trainer"]

    def _write_tfjob(self, spec: Manifest, before: JobForm, changed: set[str]) -> None:
        replicas = spec.setdefault("replicaSpecs", [])
        if "nodes" in changed:
            _put_workers(replicas, self.nodes or 0)
        if not changed & {"image", "command", "gpus"}:
            return
        if not list(_program_replicas(replicas)):
            replicas.append({"tfReplicaType": "MASTER", "replicas": 1})
        for container in [_made_container(replica) for replica in _program_replicas(replicas)]:
            if "image" in changed and _string(container, "image", "image") == before.image:
                _put(container, "image", self.image or None)
            if "command" in changed and _words(container, "command") == before.command:
                _put(container, "command", list(self.command) or None)
            if "gpus" in changed and _gpus(container, "resources") == before.gpus:
                _put_gpus(container, "resources", self.gpus)


def kind_of(manifest: Mapping[str, Any]) -> str:
    """TFJob or TrainJob. Raises `FormError` for anything else."""
    for kind, each in KINDS.items():
        if (manifest.get("apiVersion"), manifest.get("kind")) == (each.resource.api_version, kind):
            return kind
    known = " or ".join(f"kind {kind} of {each.resource.api_version}" for kind, each in KINDS.items())
    raise FormError("kind", f"Kind: the manifest is not a job of this operator; set apiVersion and kind to {known}.")


def new_manifest(kind: str) -> Manifest:
    """The manifest with which an empty form begins."""
    spec: Manifest = {"numNodes": 1}
    if kind == "TFJob":
        spec = {"replicaSpecs": [{"tfReplicaType": "MASTER", "replicas": 1}]}
        _made_container(spec["replicaSpecs"][0])
    return {"apiVersion": KINDS[kind].resource.api_version, "kind": kind, "metadata": {}, "spec": spec}


def cloned(manifest: Mapping[str, Any]) -> Manifest:
    """The manifest of a new job like this one: without status and whatever belongs to the existing object alone."""
    found = plain_copy(manifest)
    metadata = found.get("metadata", {})
    kept = {name: metadata[name] for name in ("namespace", "labels", "annotations") if name in metadata}
    notes = {key: each for key, each in kept.pop("annotations", {}).items() if not key.startswith("kubectl.kubernetes")}
    found["metadata"] = {
        "name": f"{metadata.get('name', 'job')}-copy",
        **kept,
        **({"annotations": notes} if notes else {}),
    }
    found.pop("status", None)
    found.get("spec", {}).pop("RuntimeId", None)
    return found


def plain_copy(manifest: Mapping[str, Any]) -> Manifest:
    """A copy in which nothing is shared, as JSON has it. Raises `FormError` for values that JSON cannot represent."""
    left = [_MAX_VALUES]

    def copied(value: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > _MAX_DEPTH:
            raise FormError("", f"The YAML has more than {_MAX_VALUES} values or {_MAX_DEPTH} levels; shorten it.")
        if isinstance(value, Mapping):
            if any(not isinstance(key, str) for key in value):
                raise FormError("", "The YAML has a key that is not a string; put it into quotes.")
            return {key: copied(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [copied(each, depth + 1) for each in value]
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise FormError("", "The YAML has a number of more than 64 bits; put it into quotes.")
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise FormError("", f"The YAML has a value of type {type(value).__name__}; put it into quotes.")

    found: Manifest = copied(manifest, 0)
    return found


def _trainjob_program(spec: Mapping[str, Any]) -> dict[str, Any]:
    trainer = _mapping(spec, "trainer", "image")
    nodes = _number(spec, "numNodes", "nodes")
    return {
        "image": _string(trainer, "image", "image"),
        "command": _words(trainer, "command"),
        "framework": _string(spec, "framework", "framework"),
        "nodes": _number(trainer, "numNodes", "nodes") if nodes is None else nodes,
        "gpus": _gpus(trainer, "resourcesPerNode"),
    }


def _tfjob_program(spec: Mapping[str, Any]) -> dict[str, Any]:
    replicas = spec.get("replicaSpecs") or []
    if not isinstance(replicas, list):
        raise FormError("nodes", "Nodes: spec.replicaSpecs must be a list; correct it in the YAML.")
    workers = next(
        (replica for replica in _program_replicas(replicas) if replica.get("tfReplicaType") == "WORKER"), None
    )
    shown = workers if workers is not None else next(_program_replicas(replicas), {})
    container = _container_of(shown)
    count = 0 if workers is None else _number(workers, "replicas", "nodes")
    return {
        "image": _string(container, "image", "image"),
        "command": _words(container, "command"),
        "nodes": 1 if count is None else count,
        "gpus": _gpus(container, "resources"),
    }


def _program_replicas(replicas: list[Any]) -> Iterator[Manifest]:
    """The masters and workers; a type that is left out is MASTER."""
    for replica in replicas:
        if not isinstance(replica, dict):
            raise FormError("nodes", "Nodes: each of spec.replicaSpecs must be a mapping; correct it in the YAML.")
        if replica.get("tfReplicaType", "MASTER") in ("MASTER", "WORKER"):
            yield replica


def _container_of(replica: Mapping[str, Any]) -> Manifest:
    """The training container of a replica; empty if there is none."""
    pod = _mapping(_mapping(replica, "template", "image"), "spec", "image")
    containers = pod.get("containers") or []
    if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
        raise FormError("image", "Image: containers must be a list of mappings; correct it in the YAML.")
    return next((container for container in containers if container.get("name") == _CONTAINER), {})


def _made_container(replica: Manifest) -> Manifest:
    """The training container of a replica, which is created if there is none."""
    if found := _container_of(replica):
        return found
    pod = _section(_section(replica, "template"), "spec")
    pod.setdefault("restartPolicy", "OnFailure")
    if not pod.get("containers"):
        pod["containers"] = []
    pod["containers"].append({"name": _CONTAINER})
    made: Manifest = pod["containers"][-1]
    return made


def _put_workers(replicas: list[Any], count: int) -> None:
    """Sets the number of workers. New workers run the master's program."""
    masters = []
    for replica in _program_replicas(replicas):
        if replica.get("tfReplicaType") == "WORKER":
            replica["replicas"] = count
            return
        masters.append(replica)
    worker: Manifest = {"tfReplicaType": "WORKER", "replicas": count}
    if masters and "template" in masters[0]:
        worker["template"] = plain_copy(masters[0]["template"])
    replicas.append(worker)


def _mapping(parent: Mapping[str, Any], key: str, field: str) -> Mapping[str, Any]:
    found = parent.get(key)
    if found is not None and not isinstance(found, dict):
        label = f"{field.capitalize()}: " if field else ""
        raise FormError(field, f"{label}{key} must be a mapping, not {type(found).__name__}; correct it in the YAML.")
    return found or {}


def _string(parent: Mapping[str, Any], key: str, field: str) -> str:
    found = parent.get(key)
    if found is not None and not isinstance(found, str):
        raise FormError(field, f"{field.capitalize()}: {key} must be a string; put it into quotes in the YAML.")
    return _printable(found or "", key, field)


def _number(parent: Mapping[str, Any], key: str, field: str) -> int | None:
    found = parent.get(key)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise FormError(field, f"{field.capitalize()}: {key} must be a whole number; correct it in the YAML.")
    return found


def _flag(parent: Mapping[str, Any], key: str, field: str) -> bool | None:
    found = parent.get(key)
    if found is not None and not isinstance(found, bool):
        raise FormError(field, f"{field.capitalize()}: {key} must be true or false; correct it in the YAML.")
    return found


def _words(parent: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = parent.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise FormError("command", "Command: must be a list of strings; put each word into quotes in the YAML.")
    return tuple(_printable(word, key, "command") for word in found)


def _printable(text: str, key: str, field: str) -> str:
    """The text; the field would show another one than it has if it had such characters."""
    if UNPRINTABLE.search(text):
        raise FormError(field, f"{field.capitalize()}: {key} has control characters; remove them from the YAML.")
    return text


def _gpus(parent: Mapping[str, Any], key: str) -> int | None:
    resources = _mapping(parent, key, "gpus")
    limit, request = (_mapping(resources, each, "gpus").get(GPU) for each in ("limits", "requests"))
    found = request if limit is None else limit
    if isinstance(found, str) and found.isascii() and found.isdecimal():
        found = int(found[:9])
    return _number({GPU: found}, GPU, "gpus")


def _section(parent: Manifest, key: str) -> Manifest:
    """The mapping below a key, which is created if there is none."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    found: Manifest = parent[key]
    return found


def _put(parent: Manifest, key: str, value: Any) -> None:
    """Sets the key, or removes it for None."""
    if value is None:
        parent.pop(key, None)
    else:
        parent[key] = value


def _put_below(parent: Manifest, section: str, key: str, value: Any) -> None:
    """Sets or removes the key in a section. A section that becomes empty is removed."""
    found = _section(parent, section)
    _put(found, key, value)
    if not found:
        del parent[section]


def _put_gpus(parent: Manifest, key: str, count: int | None) -> None:
    resources = _section(parent, key)
    if count is None or GPU in _mapping(resources, "requests", "gpus"):
        _put_below(resources, "requests", GPU, count)
    _put_below(resources, "limits", GPU, count)
    if not resources:
        del parent[key]
