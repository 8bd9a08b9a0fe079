"""An overlay on real nodes as a user applies it. The nodes already have its images, so no registry is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from helpers.renderings import render_overlay, render_with
from localcluster import images
from localcluster import nodes as nodes_module
from localcluster.crds import install_crds

SYSTEM = "tfjob-system"
# It is deleted with its namespace.
_STAYING = ("ConfigMap",)

Object = dict[str, Any]


@contextlib.contextmanager
def installed(cluster: Cluster, overlay: str, cache: Path, *components: str) -> Iterator[Kubectl]:
    """Installs the CRDs and an overlay of manifests/overlays with components; yields kubectl in its namespace.

    Afterwards everything except the CRDs is being deleted. The roles are deleted at once, so that the next test does
    not have to wait for the end of the pods, unless it installs an overlay too.
    """
    kubectl = Kubectl(cluster.kubeconfig, cache, SYSTEM)
    cache.mkdir(parents=True, exist_ok=True)
    objects = render_with(kubectl, cache, overlay, *components) if components else render_overlay(kubectl, overlay)
    for image in sorted({"localhost/base", *(part["image"] for part in _containers(objects))}):
        nodes_module.load_image(cluster.folder, image)
    await_removal(cluster)
    install_crds(cluster.api)
    manifest = yaml.safe_dump_all(objects)
    kubectl.must("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=manifest)
    try:
        yield kubectl
    finally:
        gone = yaml.safe_dump_all([each for each in objects if each["kind"] not in _STAYING])
        kubectl.must("delete", "--ignore-not-found", "--wait=false", "-f", "-", manifest=gone)


def await_removal(cluster: Cluster) -> None:
    """Waits until the objects that an earlier test installed are deleted."""
    eventually(lambda: cluster.api.find(f"/api/v1/namespaces/{SYSTEM}") is None, 180, 0.5)


def await_rollout(kubectl: Kubectl, name: str) -> None:
    """Waits until all replicas of the Deployment are ready."""
    # The wait has several parts, each shorter than the limit for a kubectl command.
    status = ("rollout", "status", f"deployment/{name}", "--timeout=30s")
    eventually(lambda: kubectl.run(*status).code == 0, 180, 0.5)


def _containers(objects: list[Object]) -> list[Object]:
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    return [part for each in deployments for part in each["spec"]["template"]["spec"]["containers"]]


def brief_job(name: str, *, gang: bool, program: str = "pass", **spec: Any) -> Object:
    """Returns a TFJob of three pods that run the Python program, which does nothing by default."""
    template = pod_template(
        container(
            image=images.BASE,
            command=["python3", "-c", program],
            imagePullPolicy="Never",
            resources={"requests": {"cpu": "10m"}},
        )
    )
    body = tfjob(master(template=template), workers(2, template=template), name=name, **spec)
    if gang:
        body["spec"]["gang"] = {"enabled": True}
    return body


def run_to_end(kubectl: Kubectl, cluster: Cluster, job: Object) -> None:
    """Creates the TFJob in kubectl's namespace and waits until it is done."""
    kubectl.must("create", "-f", "-", manifest=job)
    await_phase(kubectl, cluster, job["metadata"]["name"], "Done")


def await_phase(kubectl: Kubectl, cluster: Cluster, name: str, phase: str) -> None:
    """Waits until the TFJob of that name in kubectl's namespace is in the phase."""
    path = f"/apis/kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/tfjobs/{name}"
    eventually(lambda: cluster.api.get(path).get("status", {}).get("phase") == phase, 120, 0.2)
