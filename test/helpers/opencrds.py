"""CRDs that let anything in, as those of old releases did: objects that they accepted are still stored."""

from __future__ import annotations

from localcluster.api import Api
from localcluster.crds import CRDS, documents, install_crd


def install_open_crds(api: Api) -> None:
    """Installs all CRDs, those of jobs and runtimes without schemas. The cluster is one of its own, without CRDs yet.

    Nor do these have the scale subresource, which reads a field.
    """
    for file in CRDS.glob("*.yaml"):
        (crd,) = documents(file.read_text())
        if crd["spec"]["group"] == "kubeflow.org":
            (version,) = crd["spec"]["versions"]
            version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
            version.get("subresources", {}).pop("scale", None)
        install_crd(api, crd)
