"""A kubeconfig with a server and without credentials."""

from __future__ import annotations

from pathlib import Path


def kubeconfig_for(url: str, folder: Path) -> Path:
    """Writes the kubeconfig to `folder`."""
    path = folder / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        f" clusters: [{{name: c, cluster: {{server: '{url}'}}}}]}}"
    )
    return path
