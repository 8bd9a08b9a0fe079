"""Writes thousands of finished TFJobs with their children directly to etcd.

The API server reads them as if it had written them, so the objects must be complete: uid, generation, status. Each job
is like a finished one of one replica, with its completed child Job and its Service.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.jobs import children_of, master_and_workers
from localcluster import probe
from localcluster.programs import ETCD_SOCKET

# etcd's limit of operations in a transaction.
_OPERATIONS = 128
_BEGIN, _END = "2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z"
_RUNTIME_ID = "k3f9"

Object = dict[str, Any]


def plant(folder: Path, namespace: str, count: int) -> None:
    """Writes the jobs; `folder` is the control plane's. Raises OSError, HTTPException, ValueError."""
    pairs = [pair for number in range(count) for pair in _of_job(namespace, f"kept-{number:05d}")]
    for start in range(0, len(pairs), _OPERATIONS):
        puts = [
            {"requestPut": {"key": _base64(key), "value": _base64(json.dumps(value))}}
            for key, value in pairs[start : start + _OPERATIONS]
        ]
        probe.etcd_call(folder, ETCD_SOCKET, "POST", "/v3/kv/txn", {"success": puts})


def _of_job(namespace: str, name: str) -> Iterator[tuple[str, Object]]:
    """Yields the keys and values of a job and its children."""
    tfjob = master_and_workers(name, 1)
    tfjob["spec"]["RuntimeId"] = _RUNTIME_ID
    tfjob["metadata"] |= _meta(namespace)
    (job,), (service,) = children_of(tfjob)
    for child in (job, service):
        child["metadata"] |= _meta(namespace)
    yield f"/registry/kubeflow.org/tfjobs/{namespace}/{name}", {**tfjob, "status": _tfjob_status()}
    yield f"/registry/jobs/{namespace}/{job['metadata']['name']}", _completed(job)
    yield f"/registry/services/specs/{namespace}/{service['metadata']['name']}", service


def _meta(namespace: str) -> Object:
    return {"namespace": namespace, "uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": _BEGIN}


def _completed(job: Object) -> Object:
    """Returns the Job with the fields that the server and the Job controller would have added."""
    uid, spec = job["metadata"]["uid"], job["spec"]
    labels = {"batch.kubernetes.io/controller-uid": uid}
    spec["template"]["metadata"]["labels"] |= labels
    spec |= {"selector": {"matchLabels": labels}, "completions": 1, "parallelism": 1}
    ended = {"status": "True", "lastProbeTime": _END, "lastTransitionTime": _END, "reason": "CompletionsReached"}
    conditions = [{"type": kind, **ended} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {"conditions": conditions, "succeeded": 1, "ready": 0, "startTime": _BEGIN, "completionTime": _END}
    return {**job, "status": {**status, "uncountedTerminatedPods": {}}}


def _tfjob_status() -> Object:
    succeeded = {"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "", "observedGeneration": 1}
    return {
        "phase": "Done",
        "state": "Succeeded",
        "replicaStatuses": [{"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}}],
        "conditions": [{**succeeded, "lastTransitionTime": _END}],
        "succeededIndexes": ["master-0"],
        "observedGeneration": 1,
        "startTime": _BEGIN,
        "completionTime": _END,
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
