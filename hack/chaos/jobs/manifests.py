"""The manifests of the jobs that users submit. Pure."""

from __future__ import annotations

from typing import Any

from chaos.jobs.plan import TFJOB, JobPlan, Part

Object = dict[str, Any]

EXPECTS = "chaos.kubeflow.org/expects"
TFJOBS = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
TRAINJOBS = "/apis/kubeflow.org/v2alpha1/namespaces/{}/trainjobs"
_IMAGE = "localhost/none"
_COMMANDS = {"mpi": ["mpirun", "train"], "torch": ["torchrun", "train.py"]}


def manifest(plan: JobPlan) -> Object:
    """Returns the manifest of a job."""
    is_tf = plan.kind == TFJOB
    spec = {**(_tf_spec(plan) if is_tf else _train_spec(plan)), **plan.spec}
    return {
        "apiVersion": "kubeflow.org/v1alpha1" if is_tf else "kubeflow.org/v2alpha1",
        "kind": plan.kind,
        "metadata": {"name": plan.name, "annotations": {EXPECTS: plan.expects}},
        "spec": {**spec, **({"gang": {"enabled": True}} if plan.is_gang else {})},
    }


def path_of(plan: JobPlan, namespace: str) -> str:
    """Returns the path of all objects of the job's kind."""
    return (TFJOBS if plan.kind == TFJOB else TRAINJOBS).format(namespace)


def _tf_spec(plan: JobPlan) -> Object:
    return {"replicaSpecs": [_replica_spec(plan, part) for part in plan.parts]}


def _replica_spec(plan: JobPlan, part: Part) -> Object:
    container = {"name": "tensorflow", "image": _IMAGE, "resources": {"requests": {"cpu": plan.cpu}}}
    pod = {"restartPolicy": plan.restart_policy, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"tfReplicaType": part.role, "replicas": part.count, "template": {"spec": pod}}


def _train_spec(plan: JobPlan) -> Object:
    nodes = next(part.count for part in plan.parts if part.role == "node")
    command = _COMMANDS.get(plan.framework, ["python3", "train.py"])
    trainer = {"image": _IMAGE, "command": command, "resourcesPerNode": {"requests": {"cpu": plan.cpu}}}
    return {"numNodes": nodes, "framework": plan.framework, "trainer": trainer}
