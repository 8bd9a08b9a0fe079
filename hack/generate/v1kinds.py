"""The CRDs of the kinds of `kubeflow.org/v1`.

They have all fields of training-operator 1.9.4 with its types and limits, so that either CRD can replace the other one
without a loss. Only pod templates are open: their fields make upstream's CRDs too large for `kubectl apply`. A test
compares the fields with a recorded list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from generate.crd import render_manifest
from generate.kubernetestypes import SCALARS, recorded
from generate.schema import INT_OR_STRING, Schema
from tfjob_controller.api.kubeflowv1.types import (
    API_GROUP,
    MPI_JOB,
    PADDLE_JOB,
    PYTORCH_JOB,
    TF_JOB,
    VERSION,
    WORKER,
    V1Kind,
)

_SOURCE = "hack/generate/v1kinds.py"

# A quantity as controller-gen describes it, which accepts more than resource.Quantity: decimals in exponents.
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_QUANTITY = INT_OR_STRING | {"pattern": rf"^[+-]?{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?{_NUMBER})?$"}


def render_v1_crd(kind: V1Kind) -> str:
    """Returns the manifest of the CRD of a kind as YAML text."""
    return render_manifest(v1_crd_of(kind), _SOURCE)


def v1_crd_of(kind: V1Kind) -> dict[str, Any]:
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{API_GROUP}"},
        "spec": {"group": API_GROUP, "scope": "Namespaced", "names": names, "versions": [_version(kind)]},
    }


def _version(kind: V1Kind) -> dict[str, Any]:
    columns = [
        {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    workers = f".status.replicaStatuses.{WORKER}"
    scale = {
        "specReplicasPath": f".spec.{kind.replicas_field}.{WORKER}.replicas",
        "statusReplicasPath": f"{workers}.active",
        "labelSelectorPath": f"{workers}.selector",
    }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns[::-1] if kind.kind == MPI_JOB else columns,
        "subresources": {"status": {}, **({"scale": scale} if kind.has_scale else {})},
        "schema": {"openAPIV3Schema": _root(kind)},
    }


def _root(kind: V1Kind) -> Schema:
    spec = {kind.replicas_field: _replica_specs(kind), "runPolicy": _run_policy(), **_fields_of(kind)}
    return _object(
        f"A job of the training-operator: {kind.kind}.",
        {
            "apiVersion": _text(f"{API_GROUP}/{VERSION}."),
            "kind": _text(f"{kind.kind}."),
            "metadata": {"type": "object"},
            "spec": _object("The desired state of the job.", spec, required=[kind.replicas_field]),
            "status": _status(),
        },
    )


def _replica_specs(kind: V1Kind) -> Schema:
    default = "1, and 0 workers" if kind.kind == MPI_JOB else "1"
    entry = _object(
        "The replicas of one type.",
        {
            "replicas": _int32(f"The number of replicas. Default: {default}."),
            "restartPolicy": _text(
                "Always, OnFailure, Never, or ExitCode, which restarts a replica whose exit code is 128 or more. "
                f"Default: {kind.restart_policy}."
            ),
            "template": {
                "description": "The pod of each replica. `kubectl explain pod` describes its fields.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    )
    return _map(f"The replicas by type: {', '.join(kind.types)}.", entry)


def _run_policy() -> Schema:
    queue = {
        "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "spec.runPolicy.schedulingPolicy.queue is immutable"}
        ]
    }
    scheduling = {
        "minAvailable": _int32("The number of pods that must run together. Default: all."),
        "queue": _text("The queue of the gang scheduler.") | queue,
        "minResources": _map("The resources that the gang needs. Default: those of its pods.", _QUANTITY),
        "priorityClass": _text("The PriorityClass of the gang."),
        "scheduleTimeoutSeconds": _int32("The seconds that the gang may wait."),
    }
    policy = {
        "cleanPodPolicy": _text("The pods to delete when the job has ended: None, Running or All. Default: None."),
        "ttlSecondsAfterFinished": _int32("The seconds between the end of the job and its deletion. Default: never."),
        "activeDeadlineSeconds": {
            "description": "The seconds that the job may run before it fails. Default: no limit.",
            **SCALARS["int64"],
        },
        "backoffLimit": _int32("The number of restarts after which the job fails. Default: no limit."),
        "schedulingPolicy": _object("The parameters of gang scheduling.", scheduling),
        "suspend": _flag("True: the job has no pods.") | {"default": False},
        "managedBy": _text(
            "The controller that runs the job: kubeflow.org/training-operator, which is the default, or "
            "kueue.x-k8s.io/multikueue. It cannot change."
        ),
    }
    return _object("The rules of the life of the job.", policy)


def _fields_of(kind: V1Kind) -> dict[str, Schema]:
    """The fields that only this kind has."""
    if kind.kind == TF_JOB:
        return {
            "successPolicy": _text("AllWorkers: the job succeeds when all workers have. Default: when the chief has."),
            "enableDynamicWorker": _flag("Workers may join and leave: TF_CONFIG of each has only its own address."),
        }
    if kind.kind == PYTORCH_JOB:
        return {
            "nprocPerNode": _text("Processes of each pod: auto, cpu, gpu or a number. Default: auto."),
            "elasticPolicy": _object("The limits and the rendezvous of an elastic job.", _torch_elastic_fields()),
        }
    if kind.kind == PADDLE_JOB:
        return {"elasticPolicy": _object("The limits of an elastic job.", _elastic_fields())}
    if kind.kind == MPI_JOB:
        return {
            "slotsPerWorker": _int32("Slots of each worker in the hostfile. Default: 1."),
            "mainContainer": _text("The container of the workers in which the launcher starts processes."),
            "cleanPodPolicy": _text("As in runPolicy, where it comes first."),
        }
    return {}


def _elastic_fields() -> dict[str, Schema]:
    return {
        "minReplicas": _int32("The least number of workers. Default: maxReplicas, or else the number of workers."),
        "maxReplicas": _int32("The largest number of workers. Default: minReplicas, or else the number of workers."),
        "maxRestarts": _int32("The number of restarts of the worker group."),
        "metrics": {
            "description": "The metrics of a HorizontalPodAutoscaler. Default: none is created.",
            "type": "array",
            "items": _kubernetes_type("MetricSpec"),
        },
    }


def _torch_elastic_fields() -> dict[str, Schema]:
    option = _object("One option.", {"key": _text("Its name."), "value": _text("Its value.")})
    return {
        **_elastic_fields(),
        "rdzvBackend": _text("The backend of the rendezvous: c10d, etcd or etcd-v2. Default: c10d."),
        "rdzvPort": _int32("The port of the rendezvous. Default: that of the job."),
        "rdzvHost": _text("The host of the rendezvous. Default: worker 0."),
        "rdzvId": _text("The identifier of the rendezvous."),
        "rdzvConf": {"description": "Options of the rendezvous.", "type": "array", "items": option},
        "standalone": _flag("Each pod has a rendezvous of its own."),
        "nProcPerNode": _int32("Deprecated: use spec.nprocPerNode."),
    }


def _status() -> Schema:
    condition = {
        "type": _text("Created, Running, Restarting, Suspended, Succeeded or Failed."),
        "status": _text("True, False or Unknown."),
        "reason": _text("The reason of the last change, as one word."),
        "message": _text("The details of the last change."),
        "lastUpdateTime": _time("When the condition was last written."),
        "lastTransitionTime": _time("When the status last changed."),
    }
    counts = {
        "active": _int32("Pods that run."),
        "succeeded": _int32("Pods that have succeeded."),
        "failed": _int32("Pods that have failed."),
        "selector": _text("Selects the pods, for the scale subresource."),
        "labelSelector": {"description": "Deprecated: use selector.", **_kubernetes_type("LabelSelector")},
    }
    return _object(
        "The observed state of the job.",
        {
            "conditions": {
                "description": "The conditions of the job; the last one is the newest.",
                "type": "array",
                "items": _object("A condition.", condition, required=["status", "type"]),
            },
            "replicaStatuses": _map("The pods by type.", _object("The pods of one type.", counts)),
            "startTime": _time("When the job was first processed, or resumed."),
            "completionTime": _time("When the job ended."),
            "lastReconcileTime": _time("When the job was last processed while its gang waited."),
        },
    )


def _kubernetes_type(name: str) -> Schema:
    """The schema of a type of Kubernetes' API as controller-gen writes it. Its lists are those of label selectors."""
    fields = recorded()[name]
    schema = {
        "type": "object",
        "properties": {field.rstrip("*"): _field_type(type_name) for field, type_name in fields.items()},
        "required": [field.rstrip("*") for field in fields if field.endswith("*")],
        "x-kubernetes-map-type": "atomic" if name == "LabelSelector" else "",
    }
    return {key: value for key, value in schema.items() if value}


def _field_type(name: str) -> Schema:
    if name.startswith("["):
        return {"type": "array", "items": _field_type(name[1:-1]), "x-kubernetes-list-type": "atomic"}
    if name.startswith("{"):
        return {"type": "object", "additionalProperties": _field_type(name[1:-1])}
    if name == "Quantity":
        return _QUANTITY
    return SCALARS[name] if name in SCALARS else _kubernetes_type(name)


def _object(description: str, properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    schema = {"description": description, "type": "object", "properties": dict(sorted(properties.items()))}
    return schema | ({"required": list(required)} if required else {})


def _map(description: str, values: Schema) -> Schema:
    return {"description": description, "type": "object", "additionalProperties": values}


def _text(description: str) -> Schema:
    return {"description": description, "type": "string"}


def _flag(description: str) -> Schema:
    return {"description": description, "type": "boolean"}


def _int32(description: str) -> Schema:
    return {"description": description, **SCALARS["int32"]}


def _time(description: str) -> Schema:
    return {"description": description, **SCALARS["Time"]}
