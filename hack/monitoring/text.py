"""YAML as generated files have it."""

from __future__ import annotations

from typing import Any

import yaml


def to_yaml(source: str, *documents: dict[str, Any]) -> str:
    """`source` says what to change instead of the file."""
    bodies = (
        yaml.safe_dump(each, sort_keys=False, width=120, default_flow_style=False, allow_unicode=True)
        for each in documents
    )
    return f"# Generated from {source} by `make generate`.\n" + "---\n".join(bodies)
