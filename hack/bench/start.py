"""The time from the controller's start until it is ready when there are many finished jobs.

On a real control plane: 1,000 finished TFJobs, each with 5 child Jobs and 5 Services (10,000 objects, the Jobs
suspended so that no controller acts on them). `tfjob-controller run` starts as a process; the time until `/readyz`
succeeds includes interpreter and imports. After that the controller is observed for some seconds, to show that it sends
no further requests: they are read from its own `rest_client_requests_total`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.controller import controller
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import Stage, in_parallel, namespace, stage, unique
from localcluster.api import Api

JOBS = size(1000, tiny=3)
REPLICAS = 5
NAMESPACE = unique("bench-start")
RUNTIME_ID = "k3f9"
# Lists and watches of six kinds, and the server's version.
ALLOWED_REQUESTS = 7
# Longer than the controller needs to write to every job.
WATCHED_SECONDS = float(size(5, tiny=1))

_TFJOBS = f"/apis/kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/tfjobs"


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds until ready, requests until then and for some time after, and the resident set at the end."""

    seconds: float
    requests: dict[str, int]
    resident_bytes: int


def fill(api: Api) -> None:
    """Creates all jobs and children."""
    begin = time.monotonic()
    in_parallel(lambda number: _create_job(api, number), range(JOBS))
    progress(f"{JOBS} finished jobs and {JOBS * REPLICAS * 2} children created in {time.monotonic() - begin:.0f} s")


def measure(kubeconfig: Path) -> Start:
    """Starts the controller once."""
    begin = time.perf_counter()
    with controller(kubeconfig) as running:
        running.wait_ready()
        seconds = time.perf_counter() - begin
        time.sleep(WATCHED_SECONDS)
        return Start(seconds, running.requests(), running.resident_bytes())


def report_start(stage: Stage) -> bool:
    """Prints the figures. Returns False if one missed its target."""
    with namespace(stage.api, NAMESPACE):
        fill(stage.api)
        starts = []
        for number in range(1, ROUNDS + 1):
            starts.append(measure(stage.kubeconfig))
            progress(f"round {number} of {ROUNDS}: {starts[-1]}")
    extra: dict[str, Any] = {"jobs": JOBS, "children": JOBS * REPLICAS * 2}
    extra["resident_megabytes"] = round(max(start.resident_bytes for start in starts) / 1e6)
    ok = report("start_to_ready", "s", [start.seconds for start in starts], reach=Reach(max_value=5.0), **extra)
    writes = [sum(n for method, n in start.requests.items() if method != "GET") for start in starts]
    reads = [start.requests.get("GET", 0) for start in starts]
    ok &= report("start_reads", "requests", reads, reach=Reach(max_value=ALLOWED_REQUESTS))
    ok &= report("start_writes", "requests", writes, reach=Reach(max_value=0))
    return ok


def _create_job(api: Api, number: int) -> None:
    name = f"done-{number:04d}"
    job = api.create(_TFJOBS, _tfjob(name))
    api.patch(f"{_TFJOBS}/{name}/status", {"status": _status()})
    owner = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": name, "uid": job["metadata"]["uid"]}
    for index in range(REPLICAS):
        meta = {
            "name": f"{name}-worker-{RUNTIME_ID}-{index}",
            "labels": {
                "kubeflow.org": "",
                "job_type": "WORKER",
                "runtime_id": RUNTIME_ID,
                "tf_job_name": name,
                "task_index": str(index),
            },
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        spec = {"suspend": True, "template": _template()}
        api.create(
            f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec},
        )
        ports = [{"name": "tf-port", "port": 2222}]
        api.create(
            f"/api/v1/namespaces/{NAMESPACE}/services",
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"clusterIP": "None", "ports": ports}},
        )


def _tfjob(name: str) -> dict[str, Any]:
    worker = {"tfReplicaType": "WORKER", "replicas": REPLICAS, "template": _template()}
    chief = {"replicaName": "WORKER", "replicaIndex": 0}
    spec = {"RuntimeId": RUNTIME_ID, "replicaSpecs": [worker], "terminationPolicy": {"chief": chief}}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def _template() -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "localhost/trainer:1", "args": ["python", "train.py"]}
    return {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}


def _status() -> dict[str, Any]:
    states = [{"tf_replica_type": "WORKER", "state": "Succeeded", "ReplicasStates": {"Succeeded": REPLICAS}}]
    return {
        "phase": "Done",
        "state": "Succeeded",
        "replicaStatuses": states,
        "observedGeneration": 1,
        "startTime": "2026-11-21T08:00:00Z",
        "completionTime": "2026-11-21T09:00:00Z",
    }


def main() -> int:
    """Runs this part of `make bench-cache` alone."""
    with stage() as ready:
        return 0 if report_start(ready) else 1


if __name__ == "__main__":
    sys.exit(main())
