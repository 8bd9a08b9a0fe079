"""CRDs that let anything in, as those of old releases did: objects that they accepted are still stored."""

from __future__ import annotations

from typing import Any

import yaml

from helpers.cluster import Cluster
from helpers.kubectl import CRDS
from helpers.playground import PATIENCE_SECONDS
from helpers.poll import eventually

_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install_open_crds(cluster: Cluster) -> None:
    """Installs the CRDs of jobs and runtimes without schemas. The cluster must be one of its own: CRDs are everybody's.

    Nor do they have the scale subresource, which reads a field.
    """
    for file in CRDS.glob("kubeflow.org_*.yaml"):
        crd: dict[str, Any] = yaml.safe_load(file.read_text())
        (version,) = crd["spec"]["versions"]
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version.get("subresources", {}).pop("scale", None)
        path = f"{_CRD_PATH}/{crd['metadata']['name']}"
        cluster.api.apply(path, crd)
        eventually(lambda path=path: _is_established(cluster, path), PATIENCE_SECONDS)  # type: ignore[misc] # bound now


def _is_established(cluster: Cluster, path: str) -> bool:
    conditions = cluster.api.get(path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
