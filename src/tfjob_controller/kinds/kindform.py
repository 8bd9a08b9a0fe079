"""What the dashboard's form for a new job knows of a kind, and how kinds read and write single fields of a manifest.

The fields of the form are those of `dashboard.jobform.JobForm`, of which a message names one first. Readers raise
`FormError` for a value of a wrong type. Writers create the mappings above a field, and remove those that become empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfjob_controller.kube.meta import Resource
from tfjob_controller.util.text import CONTROL_CHARACTERS

Manifest: TypeAlias = dict[str, Any]
GPU = "nvidia.com/gpu"
# Tab and line feed are text.
UNPRINTABLE = re.compile(f"[\x00-\x08\x0b-\x1f{CONTROL_CHARACTERS}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindForm:
    """See the module."""

    resource: Resource[Any]
    bounds: tuple[str, str, str]
    """A section of the spec, and its fields with the minimum and the maximum of an elastic job."""
    nodes_label: str = "Nodes"
    nodes_hint: str = ""
    min_nodes: int = 1
    max_nodes: int
    requires_nodes: bool = False
    """Whether the number of nodes cannot be left empty; `nodes_hint` then is the remedy."""
    fixed_framework: str = ""
    """The framework of all jobs of the kind, which the form cannot change; empty if jobs name their framework."""
    framework_hint: str = ""
    """The frameworks that a job can name, in a sentence."""
    identity_fields: Sequence[str] = ()
    """The fields of the spec that a copy of a job must not have."""
    message_patterns: Sequence[tuple[str, str]]
    """A field of the form, and a regular expression for the names that messages use for it."""
    new_spec: Callable[[], dict[str, Any]]
    """The spec of an empty form."""
    read_fields: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The image, command, nodes and GPUs of a spec, and its framework unless it is fixed."""
    write_fields: Callable[[dict[str, Any], Mapping[str, Any]], None]
    """Writes new values of these fields, by their names, into a spec."""


class FormError(Exception):
    """A manifest that the form cannot show, in one sentence with the remedy. `field` is the form's, or empty."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def mapping_at(parent: Mapping[str, Any], key: str, *, field: str) -> Mapping[str, Any]:
    """The mapping at a key, empty if there is none. Raises FormError about this field of the form."""
    value = parent.get(key)
    if value is not None and not isinstance(value, dict):
        label = f"{field.capitalize()}: " if field else ""
        raise FormError(field, f"{label}{key} must be a mapping, not {type(value).__name__}; correct it in the YAML.")
    return value or {}


def string_at(parent: Mapping[str, Any], key: str, field: str) -> str:
    """Empty if there is none."""
    value = parent.get(key)
    if value is not None and not isinstance(value, str):
        raise FormError(field, f"{field.capitalize()}: {key} must be a string; put it into quotes in the YAML.")
    return _printable(value or "", key, field)


def number_at(parent: Mapping[str, Any], key: str, field: str) -> int | None:
    value = parent.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise FormError(field, f"{field.capitalize()}: {key} must be a whole number; correct it in the YAML.")
    return value


def flag_at(parent: Mapping[str, Any], key: str, field: str) -> bool | None:
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise FormError(field, f"{field.capitalize()}: {key} must be true or false; correct it in the YAML.")
    return value


def command_at(parent: Mapping[str, Any]) -> tuple[str, ...]:
    command = parent.get("command") or []
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise FormError("command", "Command: must be a list of strings; put each word into quotes in the YAML.")
    return tuple(_printable(word, "command", "command") for word in command)


def gpus_at(parent: Mapping[str, Any], key: str) -> int | None:
    """The GPUs of the resources at a key: their limit or else their request."""
    resources = mapping_at(parent, key, field="gpus")
    limit, request = (mapping_at(resources, part, field="gpus").get(GPU) for part in ("limits", "requests"))
    count = request if limit is None else limit
    if isinstance(count, str) and count.isascii() and count.isdecimal():
        # More digits are beyond any limit, too.
        count = int(count[:9])
    return number_at({GPU: count}, GPU, "gpus")


def section_at(parent: Manifest, key: str) -> Manifest:
    """The mapping at a key, which is created if there is none."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    section: Manifest = parent[key]
    return section


def put(parent: Manifest, key: str, value: Any) -> None:
    """Sets the key, or removes it for None."""
    if value is None:
        parent.pop(key, None)
    else:
        parent[key] = value


def put_below(parent: Manifest, section_key: str, key: str, value: Any) -> None:
    """Sets or removes the key in a section. A section that becomes empty is removed."""
    section = section_at(parent, section_key)
    put(section, key, value)
    if not section:
        del parent[section_key]


def put_gpus(parent: Manifest, key: str, count: int | None) -> None:
    """Sets the limit, and the request if there is one; None removes both."""
    resources = section_at(parent, key)
    if count is None or GPU in mapping_at(resources, "requests", field="gpus"):
        put_below(resources, "requests", GPU, count)
    put_below(resources, "limits", GPU, count)
    if not resources:
        del parent[key]


def _printable(text: str, key: str, field: str) -> str:
    """The text. Raises `FormError` for characters that a browser drops from a field, or hides in it."""
    if UNPRINTABLE.search(text):
        raise FormError(field, f"{field.capitalize()}: {key} has control characters; remove them from the YAML.")
    return text
