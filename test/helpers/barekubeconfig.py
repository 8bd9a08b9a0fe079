"""Kubeconfigs with a server, without credentials and with a token."""

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


def kubeconfig_with_token(url: str, folder: Path) -> str:
    """Writes a kubeconfig of namespace `ns` to `folder`, and returns its path."""
    path = folder / "kubeconfig"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u, namespace: ns}}],"
        f" clusters: [{{name: c, cluster: {{server: '{url}'}}}}], users: [{{name: u, user: {{token: s3cret}}}}]}}"
    )
    return str(path)
