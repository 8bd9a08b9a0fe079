"""Kubeflow Trainer's CRDs and runtimes from its Go module, to test that its manifests run here unmodified.

    install_kubeflow_crds(api)    # TrainJob, TrainingRuntime and ClusterTrainingRuntime
    kubeflow_manifests("manifests/base/runtimes/torch_distributed.yaml")

The module is downloaded into Go's cache and compared with the checksum here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localcluster.api import Api
from localcluster.crds import documents
from localcluster.foreigncrds import Published

Object = dict[str, Any]

_KINDS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
KUBEFLOW_TRAINER = Published(
    "github.com/kubeflow/trainer/v2",
    "v2.3.0",
    "h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU=",
    tuple(f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml" for kind in _KINDS),
)
RUNTIMES = "manifests/base/runtimes"


@functools.cache
def kubeflow_module() -> Path:
    """Returns the folder of the module, which is downloaded first if necessary. Raises LocalClusterError."""
    return KUBEFLOW_TRAINER.folder()


def install_kubeflow_crds(api: Api) -> None:
    """Applies the CRDs. Raises LocalClusterError."""
    KUBEFLOW_TRAINER.install(api)


def kubeflow_manifests(path: str) -> Iterator[Object]:
    """Yields the objects of a file of the module."""
    yield from documents((kubeflow_module() / path).read_text())


def kubeflow_runtimes() -> Iterator[Object]:
    """Yields all runtimes that Kubeflow Trainer publishes."""
    root = kubeflow_module() / RUNTIMES
    for path in sorted(root.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from kubeflow_manifests(str(path.relative_to(kubeflow_module())))
