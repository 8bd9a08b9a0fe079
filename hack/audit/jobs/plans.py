"""Decides which replicas a job may have: those that any version of its spec has requested. Pure."""

from __future__ import annotations

from audit.jobs.facts import is_elastic, is_finished, status_of, succeeded_replicas
from audit.jobs.history import TFJOBS, Object, ObjectRecord
from tfjob_controller.api.gang import index_of, kind_of

# Roles of a TrainJob with one pod each; only nodes have a count.
_SINGLE_ROLES = ("dataset-initializer", "model-initializer", "model-exporter", "launcher")
_UNKNOWN = 1 << 31


def is_planned(job: ObjectRecord, replica: str) -> bool:
    """Reports whether any version of the job contains the replica."""
    role, index = kind_of(replica), index_of(replica) or 0
    count_of = _tf_count if job.kind == TFJOBS else _train_count
    return index < max(count_of(version, role) for version in job.versions)


def node_count(job: Object) -> int:
    """Returns the number of nodes of a TrainJob, from its spec or, for its runtime, from its status; 0 if unknown.

    Of an elastic job that has ended, the spec may request more than ever existed, or fewer than were left.
    """
    spec = job["spec"]
    requested = spec.get("numNodes") or (spec.get("trainer") or {}).get("numNodes")
    steps = status_of(job).get("jobsStatus") or ()
    count = int(requested or next((step.get("replicas", 0) for step in steps if step["name"] == "node"), 0))
    existing = int(status_of(job).get("currentNodes", 0)) if is_elastic(job) and is_finished(job) else 0
    return min(count, existing) if existing else count


def _tf_count(job: Object, role: str) -> int:
    for entry in job["spec"].get("replicaSpecs") or ():
        if str(entry.get("tfReplicaType", "MASTER")).lower() == role:
            count = int(entry.get("replicas", 1))
            return max(count, _most_workers(job)) if role == "worker" else count
    return 0


def _most_workers(job: Object) -> int:
    """Returns the largest number of worker indexes: workers that have succeeded keep their index, others are added."""
    spec = job["spec"]
    most = max(int(spec.get("workerReplicas") or 0), int((spec.get("autoscaling") or {}).get("maxWorkers") or 0))
    succeeded = [replica for replica in succeeded_replicas(job) if kind_of(replica) == "worker"]
    return most + len(succeeded) if most else 0


def _train_count(job: Object, role: str) -> int:
    if role == "node":
        return node_count(job) or _UNKNOWN
    return 1 if role in _SINGLE_ROLES else 0
