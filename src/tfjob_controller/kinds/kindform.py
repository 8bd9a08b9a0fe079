"""What the dashboard's form for a new job knows of a kind.

The fields of the form are those of `dashboard.jobform.JobForm`. Functions raise `FormError` for values of a wrong type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.kube.meta import Resource


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
    patterns: Sequence[tuple[str, str]]
    """A field of the form, and a regular expression for the names that messages use for it."""
    new_spec: Callable[[], dict[str, Any]]
    """The spec of an empty form."""
    read_program: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The image, command, nodes and GPUs of a spec, and its framework unless it is fixed."""
    write_program: Callable[[dict[str, Any], Mapping[str, Any]], None]
    """Writes new values of these fields, by their names, into a spec."""
