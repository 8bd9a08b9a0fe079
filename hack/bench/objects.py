"""Watch events of pods as large as in real clusters, to measure caches.

A pod of a training job as an API server sends it: template from a user's manifest, additions of admission and
defaulting, a running status, and the `managedFields` of the programs that write to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PODS_PER_JOB = 5
_FIRST_VERSION = 1000
_STARTED = "2026-11-21T08:00:07Z"


def initial(pod_count: int) -> Iterator[bytes]:
    """Yields the lines of a streaming list: so many pods, and the bookmark that ends it."""
    for number in range(pod_count):
        yield _line("ADDED", pod(number, _FIRST_VERSION + number))
    end = {"resourceVersion": str(_FIRST_VERSION + pod_count), "annotations": {"k8s.io/initial-events-end": "true"}}
    yield _line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": end})


def changes(pod_count: int, event_count: int) -> Iterator[bytes]:
    """Yields the lines of changes that follow such a list."""
    for number in range(event_count):
        yield _line("MODIFIED", pod(number % pod_count, _FIRST_VERSION + pod_count + 1 + number))


def pod(number: int, version: int) -> dict[str, Any]:
    """Returns a running pod, one of `PODS_PER_JOB` for each job."""
    job, index = divmod(number, PODS_PER_JOB)
    child = f"training-run-{job:05d}-worker-k3f9-{index}"
    metadata, spec, status = _metadata(child, job, index, number, version), _spec(child, job, number), _status(number)
    written = {"metadata": {"labels": metadata["labels"]}, "spec": {"containers": spec["containers"]}}
    metadata["managedFields"] = [
        _managed("kube-controller-manager", written),
        _managed("kubelet", {"status": status}) | {"subresource": "status"},
    ]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def _line(type_: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": obj}, separators=(",", ":")).encode()


def _uid(kind: int, number: int) -> str:
    return f"{number:08x}-5b1c-4c{kind:02x}-9d3e-0242ac{number:06x}"


def _metadata(child: str, job: int, index: int, number: int, version: int) -> dict[str, Any]:
    labels = {
        "batch.kubernetes.io/controller-uid": _uid(1, number),
        "batch.kubernetes.io/job-name": child,
        "controller-uid": _uid(1, number),
        "job-name": child,
        "job_type": "WORKER",
        "kubeflow.org": "",
        "runtime_id": "k3f9",
        "task_index": str(index),
        "tf_job_name": f"training-run-{job:05d}",
        "app.kubernetes.io/part-of": "recommendation",
        "team": f"ml-{job % 20}",
    }
    return {
        "name": f"{child}-{number:05x}",
        "generateName": f"{child}-",
        "namespace": f"team-{job % 20}",
        "uid": _uid(2, number),
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-11-21T08:00:00Z",
        "labels": labels,
        "annotations": {
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9102",
            "sidecar.istio.io/inject": "false",
        },
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": child,
                "uid": _uid(1, number),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _managed(manager: str, obj: dict[str, Any]) -> dict[str, Any]:
    head = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _STARTED}
    return {**head, "fieldsType": "FieldsV1", "fieldsV1": _fields(obj)}


def _fields(value: Any) -> dict[str, Any]:
    """Returns the set of the fields of an object as `managedFields` have it; a list of objects is keyed by names."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields(inner) for name, inner in value.items()}
    if not isinstance(value, list):
        return {}
    keys = [(key, item) for item in value if isinstance(item, dict) for key in ("name", "type") if key in item]
    return {f'k:{{"{key}":"{item[key]}"}}': {".": {}, **_fields(item)} for key, item in keys}


_ENV = (
    "TF_CONFIG", "PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY", "AWS_REGION", "S3_ENDPOINT",
    "DATASET_PATH", "MODEL_DIR", "LEARNING_RATE", "BATCH_SIZE", "EPOCHS", "OMP_NUM_THREADS",
)  # fmt: skip
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def _spec(child: str, job: int, number: int) -> dict[str, Any]:
    hosts = ",".join(f'"{child[:-2]}-{index}:2222"' for index in range(PODS_PER_JOB))
    tf_config = f'{{"cluster":{{"worker":[{hosts}]}},"task":{{"type":"worker","index":0}},"environment":"cloud"}}'
    env = [{"name": name, "value": f"/data/{name.lower()}/run-{job}"} for name in _ENV[1:]]
    return {
        "volumes": [
            {"name": "dataset", "persistentVolumeClaim": {"claimName": "imagenet", "readOnly": True}},
            {"name": "models", "persistentVolumeClaim": {"claimName": f"models-{job % 20}"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            {
                "name": "kube-api-access-x7k2p",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    ],
                    "defaultMode": 420,
                },
            },
        ],
        "containers": [
            {
                "name": "tensorflow",
                "image": "registry.example.com/recommendation/trainer@sha256:" + "3f9a" * 16,
                "args": ["python", "-m", "trainer.main", "--data=/data", f"--run={job}", "--checkpoint-every=500"],
                "workingDir": "/app",
                "env": [*env, {"name": "TF_CONFIG", "value": tf_config}],
                "ports": [{"name": "tf-port", "containerPort": 2222, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "8", "memory": "32Gi"}, "requests": {"cpu": "8", "memory": "32Gi"}},
                "volumeMounts": [
                    {"name": "dataset", "mountPath": "/data", "readOnly": True},
                    {"name": "models", "mountPath": "/models"},
                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (a mount in a made-up pod)
                    {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/k", "readOnly": True},
                ],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": f"node-{number % 500:03d}",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for name in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _status(number: int) -> dict[str, Any]:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _STARTED}
            for name in _CONDITIONS
        ],
        "hostIP": "192.168.1.10",
        "hostIPs": [{"ip": "192.168.1.10"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": "2026-11-21T08:00:00Z",
        "containerStatuses": [
            {
                "name": "tensorflow",
                "state": {"running": {"startedAt": _STARTED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example.com/recommendation/trainer@sha256:" + "3f9a" * 16,
                "imageID": "registry.example.com/recommendation/trainer@sha256:" + "3f9a" * 16,
                "containerID": f"containerd://{number:064x}",
                "started": True,
            }
        ],
        "qosClass": "Guaranteed",
    }
