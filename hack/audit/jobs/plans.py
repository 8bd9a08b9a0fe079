"""Which replicas a job may have at all: what its spec has ever asked for. Pure."""

from __future__ import annotations

from audit.jobs.facts import Replica, status_of
from audit.jobs.history import TFJOBS, Life, Object

# Of a TrainJob: one pod each. Nodes are counted.
_SINGLE_ROLES = ("dataset-initializer", "model-initializer", "model-exporter", "launcher")
_UNKNOWN = 1 << 31


def is_planned(job: Life, replica: Replica) -> bool:
    """Whether any version of the job has a place for it."""
    if job.kind == TFJOBS:
        most = max(_tf_count(version, replica.role) for version in job.versions)
    else:
        most = max(_train_count(version, replica.role) for version in job.versions)
    return replica.index < most


def node_count(job: Object) -> int:
    """Of a TrainJob: what it says itself, or its status says for its runtime; 0 if neither does."""
    spec = job["spec"]
    said = spec.get("numNodes") or (spec.get("trainer") or {}).get("numNodes")
    steps = status_of(job).get("jobsStatus") or ()
    return int(said or next((each.get("replicas", 0) for each in steps if each["name"] == "node"), 0))


def _tf_count(job: Object, role: str) -> int:
    spec = job["spec"]
    for each in spec.get("replicaSpecs") or ():
        if str(each.get("tfReplicaType", "MASTER")).lower() == role:
            count = int(each.get("replicas", 1))
            return max(count, _most_workers(job)) if role == "worker" else count
    return 0


def _most_workers(job: Object) -> int:
    """Those that have succeeded keep their indexes, and others come beside them."""
    spec = job["spec"]
    most = max(int(spec.get("workerReplicas") or 0), int((spec.get("autoscaling") or {}).get("maxWorkers") or 0))
    done = [each for each in status_of(job).get("succeededIndexes") or () if each.startswith("worker-")]
    return most + len(done) if most else 0


def _train_count(job: Object, role: str) -> int:
    if role == "node":
        return node_count(job) or _UNKNOWN
    return 1 if role in _SINGLE_ROLES else 0
