"""Kubeconfigs with one context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

# Of `kubeconfig_with_token`.
TOKEN = "s3cret"


def write_kubeconfig(
    path: Path, cluster: Mapping[str, object], user: Mapping[str, object] | None = None, **context: object
) -> str:
    """Writes a kubeconfig with the context `x` of the cluster `c` and the user `u`, and returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config))
    return str(path)


def kubeconfig_for(url: str, folder: Path) -> Path:
    """Writes one without credentials to `folder`."""
    return Path(write_kubeconfig(folder / "kubeconfig", {"server": url}))


def kubeconfig_with_token(url: str, folder: Path) -> str:
    """Writes one of the namespace `ns` to `folder`, and returns its path."""
    return write_kubeconfig(folder / "kubeconfig", {"server": url}, {"token": TOKEN}, namespace="ns")
