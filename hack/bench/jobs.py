"""Jobs for measurements, and the children that the controller's own code builds for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJOBS as TFJOBS_RESOURCE
from tfjob_controller.api.trainjob.types import TRAINJOBS as TRAINJOBS_RESOURCE
from tfjob_controller.jobs.actions.children import build_job, build_service
from tfjob_controller.jobs.frameworks.environment import TORCH
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.kinds.tfjob.plan import build_plan
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe

Object = dict[str, Any]

TFJOBS = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
TRAINJOBS = "/apis/kubeflow.org/v2alpha1/namespaces/{}/trainjobs"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
SERVICES = "/api/v1/namespaces/{}/services"
PODS = "/api/v1/namespaces/{}/pods"
_RUNTIME_ID = "r000"


def tfjob(name: str, replicas: int) -> Object:
    """Returns a TFJob with one MASTER, the rest WORKERs."""
    container = {"name": "tensorflow", "image": "localhost/trainer:1", "args": ["python", "train.py"]}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    counts = {"MASTER": 1, "WORKER": replicas - 1}
    specs = [
        {"tfReplicaType": kind, "replicas": count, "template": template} for kind, count in counts.items() if count
    ]
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": specs},
    }


def trainjob(name: str, nodes: int) -> Object:
    """Returns a TrainJob for torch."""
    trainer = {"image": "localhost/trainer:1", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"numNodes": nodes, "trainer": trainer},
    }


def children_of(created: Object) -> Iterator[tuple[str, Object]]:
    """Yields the path and the body of each child in the controller's order, from an API server's response."""
    plan, namespace = _plan_of(created), created["metadata"]["namespace"]
    children: dict[tuple[str, str], Object] = {}
    for replica in plan.replicas.by_name.values():
        for path, body in ((JOBS, build_job(plan, replica)), (SERVICES, build_service(plan, replica))):
            # The nodes of a TrainJob share an Indexed Job.
            children.setdefault((path.format(namespace), body["metadata"]["name"]), body)
    yield from ((path, body) for (path, _), body in children.items())


def _plan_of(created: Object) -> Plan:
    if created["kind"] == "TrainJob":
        job = TRAINJOBS_RESOURCE.decode(msgspec.json.encode(created))
        return build_train_plan(Recipe(job, TORCH, None, ControllerConfig()))
    named = {**created, "spec": {**created["spec"], "RuntimeId": _RUNTIME_ID}}
    return build_plan(TFJOBS_RESOURCE.decode(msgspec.json.encode(named)), ControllerConfig(), restart_rules=True)
