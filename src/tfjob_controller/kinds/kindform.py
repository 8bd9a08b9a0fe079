"""What the dashboard's form for a new job knows of a kind, and how kinds read and write single fields of a manifest.

The fields of the form are those of `dashboard.jobform.JobForm`. A kind has a `FormField` for each one of its jobs.
Readers raise `FormError` for a value of a wrong type. Writers create the mappings above a field, and remove those that
become empty. `podform` has those of containers and volumes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfjob_controller.kube.meta import Resource
from tfjob_controller.util.text import CONTROL_CHARACTERS

Manifest: TypeAlias = dict[str, Any]
# Tab and line feed are text.
UNPRINTABLE = re.compile(f"[\x00-\x08\x0b-\x1f{CONTROL_CHARACTERS}]")
# How the form and messages name the fields.
LABELS = {
    "kind": "Kind",
    "name": "Name",
    "namespace": "Namespace",
    "runtime": "Runtime",
    "framework": "Framework",
    "image": "Image",
    "command": "Command",
    "env": "Environment",
    "other_env": "Other variables",
    "nodes": "Nodes",
    "cpu": "CPU",
    "memory": "Memory",
    "gpus": "GPUs of each node",
    "gpu_resource": "GPU resource",
    "shared_memory": "Shared memory",
    "volumes": "Volumes",
    "other_volumes": "Other volumes",
    "dataset": "Dataset",
    "dataset_secret": "Secret for the dataset",
    "model": "Model to start with",
    "model_secret": "Secret for the model",
    "output": "Trained model",
    "output_secret": "Secret for the trained model",
    "checkpoint": "Checkpoints",
    "checkpoint_secret": "Secret for checkpoints",
    "keep": "Checkpoints kept",
    "gang": "Gang",
    "gang_timeout": "Gang timeout",
    "priority": "Priority",
    "minimum": "Elastic: at least",
    "maximum": "Elastic: at most",
    "restarts": "Restart limit",
    "deadline": "Time limit",
    "ttl": "Deleted after its end",
}


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of the form: how it is read from a spec, and how a new value is written into one."""

    read: Callable[[Mapping[str, Any]], Any]
    write: Callable[[Manifest, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindForm:
    """See the module."""

    resource: Resource[Any]
    nodes_label: str = "Nodes"
    nodes_hint: str = ""
    min_nodes: int = 1
    max_nodes: int
    requires_nodes: bool = False
    """Whether the number of nodes cannot be left empty; `nodes_hint` then is the remedy."""
    frameworks: Sequence[str] = ()
    """The frameworks that the form offers; none if all jobs of the kind have the same one."""
    runtimes: Sequence[Resource[Any]] = ()
    """The kinds of the runtimes to which a job can refer: that of the cluster, and that of the job's namespace."""
    identity_fields: Sequence[str] = ()
    """The fields of the spec that a copy of a job must not have."""
    message_patterns: Sequence[tuple[str, str]]
    """A field of the form, and a regular expression for the names that messages use for it."""
    new_spec: Callable[[], dict[str, Any]]
    """The spec of an empty form."""
    parts: Mapping[str, FormField]
    """The fields of its jobs besides kind, name and namespace, in the order in which they are written."""


class FormError(Exception):
    """What the form cannot show or send: a sentence with the remedy for each field, or "yaml" for none of them.

    `field` is the first one, or empty.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.problems: Mapping[str, str] = {field or "yaml": message}

    @staticmethod
    def of(problems: Mapping[str, str]) -> FormError:
        """The error of several fields."""
        field = next(iter(problems))
        error = FormError("" if field == "yaml" else field, problems[field])
        error.problems = problems
        return error


def scalar(
    field: str, path: Sequence[str], read: Callable[[Mapping[str, Any], str, str], Any], *aliases: Sequence[str]
) -> FormField:
    """The part of a field that is one value at a path. `aliases` are other paths of it, which are not written."""
    paths = (path, *aliases)

    def read_first(spec: Mapping[str, Any]) -> Any:
        values = [read(parent_at(spec, each, field), each[-1], field) for each in paths]
        return next((value for value in values if value not in (None, "")), values[0])

    def write(spec: Manifest, value: Any) -> None:
        put_at(spec, path, None if value == "" else value)
        for alias in aliases:
            put_at(spec, alias, None)

    return FormField(read_first, write)


def parent_at(spec: Mapping[str, Any], path: Sequence[str], field: str) -> Mapping[str, Any]:
    """The mapping above the end of a path, empty if there is none."""
    for key in path[:-1]:
        spec = mapping_at(spec, key, field=field)
    return spec


def mapping_at(parent: Mapping[str, Any], key: str, *, field: str) -> Mapping[str, Any]:
    """The mapping at a key, empty if there is none. Raises FormError about this field of the form."""
    value = parent.get(key)
    if value is not None and not isinstance(value, dict):
        raise _wrong(field, f"{key} must be a mapping, not {type(value).__name__}; correct it in the YAML.")
    return value or {}


def mappings_at(parent: Mapping[str, Any], key: str, *, field: str) -> list[Manifest]:
    """The list of mappings at a key, empty if there is none."""
    value = parent.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise _wrong(field, f"{key} must be a list of mappings; correct it in the YAML.")
    return value or []


def string_at(parent: Mapping[str, Any], key: str, field: str) -> str:
    """Empty if there is none."""
    value = parent.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(field, f"{key} must be a string; put it into quotes in the YAML.")
    return printable(value or "", key, field)


def number_at(parent: Mapping[str, Any], key: str, field: str) -> int | None:
    value = parent.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _wrong(field, f"{key} must be a whole number; correct it in the YAML.")
    return value


def flag_at(parent: Mapping[str, Any], key: str, field: str) -> bool | None:
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise _wrong(field, f"{key} must be true or false; correct it in the YAML.")
    return value


def command_at(parent: Mapping[str, Any]) -> tuple[str, ...]:
    command = parent.get("command") or []
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise _wrong("command", "must be a list of strings; put each word into quotes in the YAML.")
    return tuple(printable(word, "command", "command") for word in command)


def section_at(parent: Manifest, key: str) -> Manifest:
    """The mapping at a key, which is created if there is none."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    section: Manifest = parent[key]
    return section


def put(parent: Manifest, key: str, value: Any) -> None:
    """Sets the key, or removes it for None and an empty list."""
    if value is None or value == []:
        parent.pop(key, None)
    else:
        parent[key] = value


def put_at(parent: Manifest, path: Sequence[str], value: Any) -> None:
    """As `put` at a path. Mappings above it that become empty are removed."""
    key, *below = path
    if not below:
        put(parent, key, value)
        return
    if value is None and not isinstance(parent.get(key), dict):
        return
    section = section_at(parent, key)
    put_at(section, below, value)
    if not section:
        del parent[key]


def printable(text: str, key: str, field: str) -> str:
    """The text. Raises `FormError` for characters that a browser drops from a field, or hides in it."""
    if UNPRINTABLE.search(text):
        raise _wrong(field, f"{key} has control characters; remove them from the YAML.")
    return text


def put_image(container: Manifest, image: str) -> None:
    put(container, "image", image or None)


def put_command(container: Manifest, command: tuple[str, ...]) -> None:
    put(container, "command", list(command))


def put_nothing(*_: Any) -> None:
    """Writes a field that the form only shows."""


def storage_parts(field: str, *path: str) -> dict[str, FormField]:
    """The parts of a URI and of the Secret with its credentials, in the section at a path."""
    secret = f"{field}_secret"
    return {
        field: scalar(field, (*path, "storageUri"), string_at),
        secret: scalar(secret, (*path, "secretRef", "name"), string_at),
    }


# The fields that are at the same place in jobs of all kinds.
COMMON_PARTS: Mapping[str, FormField] = {
    **storage_parts("checkpoint", "checkpoint"),
    "keep": scalar("keep", ("checkpoint", "keep"), number_at),
    "gang": scalar("gang", ("gang", "enabled"), flag_at),
    "gang_timeout": scalar("gang_timeout", ("gang", "timeoutSeconds"), number_at),
    "priority": scalar("priority", ("gang", "priority"), number_at),
    "deadline": scalar("deadline", ("activeDeadlineSeconds",), number_at),
    "ttl": scalar("ttl", ("ttlSecondsAfterFinished",), number_at),
}


def _wrong(field: str, sentence: str) -> FormError:
    return FormError(field, f"{LABELS[field]}: {sentence}" if field else sentence)
