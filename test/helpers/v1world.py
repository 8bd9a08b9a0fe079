"""Jobs of `kubeflow.org/v1` on a control plane, and what clients see of them, for comparisons of two controllers.

What differs between any two runs (UIDs, times, the namespace) is left out or replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import Any

from helpers.poll import PATIENCE_SECONDS
from helpers.v1manifests import v1_manifest
from localcluster.api import Api, RefusedError
from tfjob_controller.api.common.record import RECORD_ANNOTATION
from tfjob_controller.api.kubeflowv1.types import V1_KINDS, V1_RESOURCES

Object = dict[str, Any]

JOB_NAME_LABEL = "training.kubeflow.org/job-name"
# The kinds that both programs run.
KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob")
_CORE, _RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
# What an MPIJob has beside its pods, by the paths of their groups and their plurals.
OF_MPI = {
    "ConfigMap": (_CORE, "configmaps"),
    "ServiceAccount": (_CORE, "serviceaccounts"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
}
# Longer than the time for which this controller collects changes of pods before it writes a status.
REST_SECONDS = 4.0
_PERIOD_SECONDS = 0.5
# Set by the server or the scheduler, or different in each namespace.
_NOT_COMPARED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace")
_TIMES = ("startTime", "completionTime", "lastReconcileTime")


def job_path(namespace: str, kind: str, name: str = "") -> str:
    resource = V1_RESOURCES[kind]
    return f"/apis/{resource.api_version}/namespaces/{namespace}/{resource.plural}" + (f"/{name}" if name else "")


def manifest_of(kind: str, replicas: Mapping[str, Any], name: str, **spec: Any) -> Object:
    """Returns a job as a user submits it."""
    manifest = v1_manifest(kind, dict(replicas), name, **spec)
    return {**manifest, "metadata": {"name": name}}


def replicas_change(kind: str, **counts: int) -> Object:
    """Returns the patch that resizes a job."""
    return {"spec": {V1_KINDS[kind].replicas_field: {type_: {"replicas": count} for type_, count in counts.items()}}}


class V1Namespace:
    """The jobs of one namespace, and what they own, by the names of the jobs."""

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name

    def submit(self, manifest: Object) -> None:
        self.api.create(job_path(self.name, manifest["kind"]), manifest)

    def patch(self, kind: str, name: str, change: Object) -> None:
        self.api.patch(job_path(self.name, kind, name), change)

    def objects(self) -> dict[str, list[Object]]:
        """Returns the objects as they are, by the names of their kinds."""
        found = {kind: self.api.list(job_path(self.name, kind)) for kind in KINDS}
        for kind, plural in (("Pod", "pods"), ("Service", "services")):
            path = f"/api/v1/namespaces/{self.name}/{plural}"
            found[kind] = [each for each in self.api.list(path) if JOB_NAME_LABEL in labels_of(each)]
        for kind, (group, plural) in OF_MPI.items():
            objects = self.api.list(f"{group}/namespaces/{self.name}/{plural}")
            found[kind] = [each for each in objects if owner_of(each)]
        return found

    def seen(self) -> dict[str, Object]:
        """Returns what a client sees of each job (see the module)."""
        found = self.objects()
        jobs = {each["metadata"]["name"]: each for kind in KINDS for each in found[kind]}
        names = {*jobs, *(labels_of(each)[JOB_NAME_LABEL] for kind in ("Pod", "Service") for each in found[kind])}
        return {name: self._seen(name, jobs.get(name), found) for name in sorted(names)}

    def _seen(self, name: str, job: Object | None, found: Mapping[str, list[Object]]) -> Object:
        def of_job(kind: str) -> list[Object]:
            return [each for each in found[kind] if labels_of(each)[JOB_NAME_LABEL] == name]

        view = {
            "job": None if job is None else _job_view(job),
            "pods": {each["metadata"]["name"]: _pod_view(each) for each in of_job("Pod")},
            "services": {each["metadata"]["name"]: _service_view(each) for each in of_job("Service")},
            "objects": {
                kind: {each["metadata"]["name"]: _object_view(each) for each in found[kind] if owner_of(each) == name}
                for kind in OF_MPI
            },
        }
        seen: Object = json.loads(json.dumps(view).replace(self.name, "NAMESPACE"))
        return seen


def labels_of(thing: Object) -> Object:
    labels: Object = thing["metadata"].get("labels") or {}
    return labels


def owner_of(thing: Object) -> str:
    """Returns the name of the MPIJob that controls an object; empty if none does."""
    owners = thing["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners if owner.get("controller") and owner["kind"] == "MPIJob"), "")


def await_rest(api: Api, namespaces: Collection[V1Namespace], seconds: float = REST_SECONDS) -> None:
    """Waits until nothing of the jobs in these namespaces has changed for that time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before, since = None, time.monotonic()
    while time.monotonic() < deadline:
        now = [_versions(namespace.objects()) for namespace in namespaces]
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since >= seconds:
            return
        time.sleep(_PERIOD_SECONDS)
    raise AssertionError("the jobs never rest")


def versions_of(found: Mapping[str, list[Object]], *kinds: str) -> dict[str, str]:
    """Returns the versions of the objects of these kinds, by their UIDs."""
    return {
        each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for kind in kinds for each in found.get(kind, ())
    }


def _versions(found: Mapping[str, list[Object]]) -> dict[str, str]:
    return versions_of(found, *found)


def _metadata_view(thing: Object) -> Object:
    metadata = {key: value for key, value in thing["metadata"].items() if key not in _NOT_COMPARED}
    if owners := metadata.pop("ownerReferences", None):
        metadata["owners"] = [{key: value for key, value in owner.items() if key != "uid"} for owner in owners]
    annotations = dict(metadata.pop("annotations", None) or {})
    # The record of this controller, which training-operator ignores.
    annotations.pop(RECORD_ANNOTATION, None)
    return {**metadata, "annotations": annotations, "deleted": metadata.pop("deletionTimestamp", None) is not None}


def _job_view(job: Object) -> Object:
    status = dict(job.get("status") or {})
    times = {name: name in status for name in _TIMES}
    conditions = [
        (each["type"], each["status"], each.get("reason"), each.get("message"))
        for each in status.get("conditions") or ()
    ]
    others = {key: value for key, value in status.items() if key not in (*_TIMES, "conditions")}
    view = {"metadata": _metadata_view(job), "spec": job["spec"], "status": {**others, "conditions": conditions}}
    view["status"]["times"] = times
    return view


def _pod_view(pod: Object) -> Object:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [_container_view(each) for each in spec[key]]
    return {"metadata": _metadata_view(pod), "spec": spec, "phase": (pod.get("status") or {}).get("phase")}


def _container_view(container: Object) -> Object:
    """Returns a container with the values that its program finds, since variables may be given twice."""
    env = {each["name"]: each.get("value", each.get("valueFrom", "")) for each in container.get("env") or ()}
    return {**container, "env": env}


def _service_view(service: Object) -> Object:
    """Returns a Service with sorted ports: training-operator creates them in random order."""
    ports = sorted(service["spec"].get("ports") or (), key=lambda port: str(port["name"]))
    return {"metadata": _metadata_view(service), "spec": {**service["spec"], "ports": ports}}


def _object_view(thing: Object) -> Object:
    """Returns an object of an MPIJob; of its files, the lines that are not empty."""
    content = {key: value for key, value in thing.items() if key not in ("metadata", "kind", "apiVersion")}
    if "data" in content:
        content["data"] = {name: [line for line in text.splitlines() if line] for name, text in content["data"].items()}
    return {"metadata": _metadata_view(thing), **content}


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Returns where two views differ, one line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [
            line
            for key in keys
            for line in differences(before.get(key, "absent"), after.get(key, "absent"), f"{path}/{key}")
        ]
    return [] if before == after else [f"{path}: {before!r} / {after!r}"]


def pod_phase(namespace: V1Namespace, pod: str) -> str:
    try:
        phase: str = (
            namespace.api.get(f"/api/v1/namespaces/{namespace.name}/pods/{pod}").get("status", {}).get("phase", "")
        )
    except RefusedError:
        return ""
    return phase
