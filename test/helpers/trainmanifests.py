"""TrainJob and TrainingRuntime manifests for tests, as dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Manifest = dict[str, Any]

GROUP = "kubeflow.org/v2alpha1"
IMAGE = "localhost/trainer"


def trainjob(
    name: str = "example-train", nodes: int | None = 2, command: Sequence[str] | None = ("train",), **spec: Any
) -> Manifest:
    """Returns a job of so many nodes.

    The fields of `trainer` are added to image and command; None leaves a field out.
    """
    trainer = {"image": IMAGE, "command": list(command) if command is not None else None, **spec.pop("trainer", {})}
    given = {"numNodes": nodes, "trainer": _given(trainer), **spec}
    return {"apiVersion": GROUP, "kind": "TrainJob", "metadata": {"name": name}, "spec": _given(given)}


def runtime(name: str = "example-runtime", *, namespaced: bool = False, **spec: Any) -> Manifest:
    """Returns a ClusterTrainingRuntime, or a TrainingRuntime."""
    kind = "TrainingRuntime" if namespaced else "ClusterTrainingRuntime"
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def role_template(role: str = "node", **container: Any) -> Manifest:
    """Returns a pod template for one role of a runtime."""
    return {"spec": {"containers": [{"name": role, **container}]}}


def override(*targets: str, **fields: Any) -> Manifest:
    """Returns one entry of podSpecOverrides, by default for the nodes."""
    return {"targetJobs": [{"name": target} for target in targets or ("node",)], **fields}


def _given(fields: Manifest) -> Manifest:
    return {name: value for name, value in fields.items() if value is not None}
