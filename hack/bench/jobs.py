"""Jobs for measurements, and the children that the controller's own code builds for them."""

from __future__ import annotations

from typing import Any

import msgspec

from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import decode_tfjob
from tfjob_controller.api.trainjob.types import decode_trainjob
from tfjob_controller.jobs.actions.children import build_job, build_service
from tfjob_controller.jobs.frameworks.environment import TORCH as TORCH
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


def template(annotations: dict[str, str] | None = None) -> Object:
    container = {"name": "tensorflow", "image": "localhost/trainer:1", "args": ["python", "train.py"]}
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {"restartPolicy": "OnFailure", "containers": [container]},
    }


def replica_spec(kind: str, replicas: int, annotations: dict[str, str] | None = None) -> Object:
    return {"tfReplicaType": kind, "replicas": replicas, "template": template(annotations)}


def tfjob(name: str, *replica_specs: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": list(replica_specs), **spec},
    }


def master_and_workers(name: str, replicas: int) -> Object:
    """Returns a TFJob with one MASTER, the rest WORKERs."""
    return tfjob(name, replica_spec("MASTER", 1), *([replica_spec("WORKER", replicas - 1)] if replicas > 1 else []))


def plan_of(created: Object) -> Plan:
    """Returns the plan of a TFJob from an API server's response, which must have a RuntimeId."""
    job = decode_tfjob(msgspec.json.encode(created))
    return build_plan(job, ControllerConfig(), restart_rules=True)


def children_of(created: Object) -> tuple[list[Object], list[Object]]:
    """Returns the bodies of the child Jobs and of the Services."""
    plan = plan_of(created)
    replicas = list(plan.replicas.by_name.values())
    return [build_job(plan, each) for each in replicas], [build_service(plan, each) for each in replicas]


def trainjob(name: str, nodes: int) -> Object:
    """Returns a TrainJob for torch."""
    trainer = {"image": "localhost/trainer:1", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"numNodes": nodes, "trainer": trainer},
    }


def children_of_trainjob(created: Object) -> tuple[list[Object], list[Object]]:
    """Returns the bodies of the child Jobs and of the Services of a TrainJob without a runtime."""
    job = decode_trainjob(msgspec.json.encode(created))
    plan = build_train_plan(Recipe(job, TORCH, None, ControllerConfig()))
    replicas = list(plan.replicas.by_name.values())
    return [build_job(plan, each) for each in replicas], [build_service(plan, each) for each in replicas]
