"""YAML as generated files have it, and the labels of the objects in them."""

from __future__ import annotations

from typing import Any

import yaml

# Of all that the component makes, so that one command can delete it.
LABELS = {"app.kubernetes.io/part-of": "tfjob-controller"}


def to_yaml(source: str, *documents: dict[str, Any]) -> str:
    """`source` says what to change instead of the file."""
    bodies = (
        yaml.safe_dump(each, sort_keys=False, width=120, default_flow_style=False, allow_unicode=True)
        for each in documents
    )
    return f"# Generated from {source} by `make generate`.\n" + "---\n".join(bodies)
