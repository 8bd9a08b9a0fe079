"""TrainJobs and runtimes of Kubeflow Trainer's API group for tests, as dicts."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]

GROUP = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def kubeflow_trainjob(name: str = "example", runtime: str = "torch-distributed", **spec: Any) -> Manifest:
    """Returns a TrainJob."""
    kind = spec.pop("kind", "ClusterTrainingRuntime")
    return {
        "apiVersion": GROUP,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime, "kind": kind}, **spec},
    }


def replicated_job(
    name: str = "node", *, ancestor: str = "trainer", container: Manifest | None = None, job: Any = None, **more: Any
) -> Manifest:
    """Returns a replicated job of one container; `job` has further fields of its Job."""
    containers = [{"name": "node" if ancestor in ("trainer", "") else ancestor, "image": "i", **(container or {})}]
    labels = {"metadata": {"labels": {ANCESTOR: ancestor}}} if ancestor else {}
    spec = {"template": {"spec": {"containers": containers}}, **(job or {})}
    return {"name": name, "template": {**labels, "spec": spec}, **more}


def kubeflow_runtime(
    *jobs: Manifest, name: str = "torch-distributed", policy: Manifest | None = None, job_set: Any = None, **spec: Any
) -> Manifest:
    """Returns a ClusterTrainingRuntime; `job_set` has further fields of the JobSet's spec."""
    of_set = {"replicatedJobs": list(jobs) or [replicated_job()], **(job_set or {})}
    return {
        "apiVersion": GROUP,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"mlPolicy": policy or {"numNodes": 1, "torch": {}}, "template": {"spec": of_set}, **spec},
    }
