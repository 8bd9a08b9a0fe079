"""Compares the results that a job reports with how its pods and Jobs ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.jobs.ends import ends_of
from audit.jobs.facts import (
    FAILED,
    SUCCEEDED,
    chief_of,
    is_finished,
    job_outcome,
    replica_of,
    state_of,
    succeeded_replicas,
    true_conditions,
)
from audit.jobs.family import Family
from audit.jobs.history import JOBS, NEVER
from audit.jobs.plans import node_count
from audit.jobs.restarts import bad_ends

# Reasons of the condition Failed that require a pod that ended with an error.
_BY_PODS = ("ReplicaFailed", "BackoffLimitExceeded")


def wrong_ends(family: Family) -> Iterator[str]:
    """Yields a job whose result or `succeededIndexes` no pod accounts for."""
    job, known = family.job, family.successes(include_late_reports=True)
    state = state_of(job.last) if is_finished(job.last) else ""
    if state == SUCCEEDED:
        for replica in _required_replicas(family):
            if replica not in known:
                yield f"{job} reports Succeeded, but no pod of {replica} exited with 0"
    if state == FAILED:
        reason = true_conditions(job.last).get(FAILED, "")
        if reason == "DeadlineExceeded" and not job.last["spec"].get("activeDeadlineSeconds"):
            yield f"{job} reports DeadlineExceeded, but has no deadline"
        if reason in _BY_PODS and not _has_error(family, reason):
            yield f"{job} reports {reason}, but no pod ended with such an error"
    for replica in succeeded_replicas(job.last):
        if replica not in known:
            yield f"{job} reports that {replica} succeeded, but no pod of it exited with 0"


def missed_successes(family: Family, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """Yields a TFJob that failed although its chief had succeeded, by a deadline or another replica.

    Within `reaction_seconds`, which start again with each outage, the controller may not have observed the success.
    Whether the chief was allowed to run again is judged by `audit.jobs.reruns`, and the result of a rerun does not
    count here.
    """
    job = family.job
    if not family.is_tfjob:
        return
    chief = chief_of(job.last["spec"])
    last_created = max((pod.begin for pod in family.pods.get(chief, ())), default=0)
    ends = [end.moment for end in family.successes().get(chief, ()) if end.moment.version > last_created]
    failed = job.first(lambda version: state_of(version) == FAILED)
    if ends and failed != NEVER:
        since = max([ends[0].at, *(at for at in outages if at < failed.at)])
        if failed.at - since > reaction_seconds:
            yield f"{job} reports Failed, but its chief had exited with 0"


def _required_replicas(family: Family) -> list[str]:
    """Returns the replicas whose success makes the job succeed."""
    if family.is_tfjob:
        return [chief_of(family.job.last["spec"])]
    children = {replica_of(child.last) for child in family.of(JOBS)}
    nodes = [f"node-{index}" for index in range(node_count(family.job.last))]
    required = ["launcher-0"] if "launcher-0" in children else nodes
    return [*required, *(children & {"model-exporter-0"})]


def _has_error(family: Family, reason: str) -> bool:
    """Reports whether a pod ended with the error that made the job fail: any, or a permanent one of the chief."""
    spec = family.job.last["spec"]
    if not family.is_tfjob or reason != "ReplicaFailed" or spec.get("failurePolicy") == "AnyReplica":
        return bool(bad_ends(family))
    chief = chief_of(spec)
    jobs = [child for child in family.of(JOBS) if replica_of(child.last) == chief]
    has_failed = any(job_outcome(version) == FAILED for child in jobs for version in child.versions)
    return has_failed or any(end.is_permanent for pod in family.pods.get(chief, ()) for end in ends_of(pod))
