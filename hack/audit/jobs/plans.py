"""Decides which replicas a job may have: those that any version of its spec has requested. Pure."""

from __future__ import annotations

from audit.jobs.facts import Replica, is_finished, status_of
from audit.jobs.history import TFJOBS, Object, ObjectRecord

# Roles of a TrainJob with one pod each; only nodes have a count.
_SINGLE_ROLES = ("dataset-initializer", "model-initializer", "model-exporter", "launcher")
_UNKNOWN = 1 << 31


def is_planned(job: ObjectRecord, replica: Replica) -> bool:
    """Reports whether any version of the job contains the replica."""
    if job.kind == TFJOBS:
        most = max(_tf_count(version, replica.role) for version in job.versions)
    else:
        most = max(_train_count(version, replica.role) for version in job.versions)
    return replica.index < most


def node_count(job: Object) -> int:
    """Returns the number of nodes of a TrainJob, from its spec or, for its runtime, from its status; 0 if unknown.

    Of an elastic job that has ended, the spec may request more than ever existed, or fewer than were left.
    """
    spec = job["spec"]
    requested = spec.get("numNodes") or (spec.get("trainer") or {}).get("numNodes")
    steps = status_of(job).get("jobsStatus") or ()
    count = int(requested or next((each.get("replicas", 0) for each in steps if each["name"] == "node"), 0))
    existing = int(status_of(job).get("currentNodes", 0)) if is_elastic(job) and is_finished(job) else 0
    return min(count, existing) if existing else count


def is_elastic(job: Object) -> bool:
    """Reports whether the nodes of a TrainJob come and go one by one."""
    return bool(job["spec"].get("elasticPolicy"))


def _tf_count(job: Object, role: str) -> int:
    spec = job["spec"]
    for each in spec.get("replicaSpecs") or ():
        if str(each.get("tfReplicaType", "MASTER")).lower() == role:
            count = int(each.get("replicas", 1))
            return max(count, _most_workers(job)) if role == "worker" else count
    return 0


def _most_workers(job: Object) -> int:
    """Returns the largest number of worker indexes: workers that have succeeded keep their index, others are added."""
    spec = job["spec"]
    most = max(int(spec.get("workerReplicas") or 0), int((spec.get("autoscaling") or {}).get("maxWorkers") or 0))
    done = [each for each in status_of(job).get("succeededIndexes") or () if each.startswith("worker-")]
    return most + len(done) if most else 0


def _train_count(job: Object, role: str) -> int:
    if role == "node":
        return node_count(job) or _UNKNOWN
    return 1 if role in _SINGLE_ROLES else 0
