"""Installs the kinds of this project on a cluster."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError

CRDS = Path(__file__).resolve().parents[2] / "manifests" / "base" / "crds"
_LIMIT_SECONDS = 120.0
_POLL_SECONDS = 0.1


def install_crds(api: Api) -> None:
    """Applies the CRDs and waits until the server serves them. Raises LocalClusterError if that takes minutes.

    Several processes may call it at the same time.
    """
    _install(api, _crds())


@functools.cache
def _crds() -> list[dict[str, Any]]:
    return [crd for path in sorted(CRDS.glob("*.yaml")) for crd in documents(path.read_text())]


def documents(text: str) -> list[dict[str, Any]]:
    """Returns the objects of a YAML text. CRDs are long, so the engine in C parses them if PyYAML has it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def install_crd(api: Api, crd: dict[str, Any]) -> None:
    """Does the same for one CRD."""
    _install(api, [crd])


def _install(api: Api, crds: Sequence[dict[str, Any]]) -> None:
    """Applies all CRDs before it waits for the first, since the server establishes them concurrently."""
    for crd in crds:
        api.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
    for crd in crds:
        spec = crd["spec"]
        for version in spec["versions"]:
            if version["served"]:
                _wait_served(api, f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")


def _wait_served(api: Api, path: str) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not _is_served(api, path):
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{path} is not served")
        time.sleep(_POLL_SECONDS)


def _is_served(api: Api, path: str) -> bool:
    """Reports whether the server serves the kind; it responds with 429 until the storage is initialized."""
    try:
        api.get(path)
    except RefusedError as error:
        if error.status in (404, 429):
            return False
        raise
    return True
