"""Replicas that ran again after they had succeeded. Pure.

A **rerun** is a pod that was created for a replica after that replica had succeeded: its training container had exited
with 0, its child Job was complete, or the job's status listed it as succeeded. A training container that exits with 0
and is started again in the same pod is one, too. A Job that is complete because its pod was deleted, and exited with 0
for that reason, is no success. A rerun is allowed for

- a parameter server of a TFJob, which is restarted until the chief has ended;
- a node or launcher of a TrainJob that was restarted with all its peers since: the pod has a higher restart attempt
  (label `kubeflow.org/generation`) than the one that succeeded;
- a success of which no record existed any more. The records are the pod and the complete Job until each is deleted. If
  a user, or the Job controller for a suspension, deleted both before the status listed the replica, nothing shows the
  success. The controller has `reaction_seconds` to write the status, which start again with each outage. A Job that the
  controller itself deletes (in the foreground, unlike the users of `make chaos`) stays a record: the controller must
  check it before the deletion.

A resume or a resize allows no rerun: replicas that have succeeded do not run again. A pod whose creation was missed
because of a gap in a watch is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from audit.jobs.facts import (
    ContainerEnd,
    Replica,
    completions_of,
    controller_of,
    ended_on_request,
    ends_of,
    owners,
    pods_of,
    restart_attempt_of,
    status_of,
    training_statuses,
)
from audit.jobs.history import JOBS, TFJOBS, TRAINJOBS, History, Object, ObjectRecord, version_of
from audit.jobs.plans import is_elastic

_CONTROLLER_FINALIZER = "foregroundDeletion"
_ALWAYS = float("inf")


@dataclass(frozen=True, slots=True)
class _Success:
    """A record of a success, the version at which that record was deleted, and when that was observed."""

    ended: ContainerEnd
    until: float = _ALWAYS
    until_at: float = _ALWAYS


def reruns(history: History, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """Yields pods that are reruns (see the module). `outages` are the times of outages."""
    known = _successes(history)
    reported = {job.uid: _reported_successes(job) for job in owners(history)}
    for replica, pod in pods_of(history):
        job = history.by_uid(replica.job)
        if job is None or not pod.is_begin_seen or (job.kind == TFJOBS and replica.role == "ps"):
            continue
        successes = (*known.get(replica, ()), *reported[job.uid].get(replica.id, ()))
        reruns_of_pod = [each for each in successes if _is_rerun(job, pod, each.ended)]
        if any(_could_be_known(history, pod, each, outages, reaction_seconds) for each in reruns_of_pod):
            yield f"{pod} was created after {replica.id} of {job} had succeeded"
        if _runs_again_in_place(pod):
            yield f"{pod} runs {replica.id} of {job} again, which had succeeded in it"


def _runs_again_in_place(pod: ObjectRecord) -> bool:
    succeeded = min((each.version for each in ends_of(pod) if each.exit_code == 0), default=None)
    return succeeded is not None and any(
        (each.get("state") or {}).get("running") is not None
        for version in pod.versions
        if version_of(version) >= succeeded
        for each in training_statuses(version)
    )


def _is_rerun(job: ObjectRecord, pod: ObjectRecord, ended: ContainerEnd) -> bool:
    if pod.begin <= ended.version or pod.uid == ended.pod:
        return False
    return job.kind == TFJOBS or restart_attempt_of(pod.last) <= ended.attempt


def _could_be_known(
    history: History, pod: ObjectRecord, success: _Success, outages: Sequence[float], reaction_seconds: float
) -> bool:
    """Reports whether a record existed when the Job of `pod` was created, or for longer than the reaction time."""
    child = history.by_uid(_job_of(pod))
    is_successor = child is not None and child.begin > success.ended.version
    if success.until > (child.begin if child is not None and is_successor else pod.begin):
        return True
    since = max([success.ended.at, *(at for at in outages if at < success.until_at)])
    return success.until_at - since > reaction_seconds


def _successes(history: History) -> dict[Replica, list[_Success]]:
    """Returns the successes of each replica, one for each record."""
    found: dict[Replica, list[_Success]] = {}
    for replica, pod in pods_of(history):
        ends = (each for each in ends_of(pod) if each.exit_code == 0)
        found.setdefault(replica, []).extend(_Success(each, *_deletion_of(pod)) for each in ends)
    stopped = {(_job_of(pod), replica) for replica, pod in pods_of(history) if ended_on_request(pod)}
    for job in history.of(JOBS):
        for replica, ended in completions_of(history, job):
            if (job.uid, replica) not in stopped:
                found.setdefault(replica, []).append(_Success(ended, *_deletion_of(job)))
    return found


def _job_of(pod: ObjectRecord) -> str:
    return str((controller_of(pod.last) or {}).get("uid", ""))


def _deletion_of(record: ObjectRecord) -> tuple[float, float]:
    """Returns the version at which an object was deleted or its deletion began, and when that was observed."""
    for version, at in zip(record.versions, record.times, strict=True):
        meta = version["metadata"]
        if not meta.get("deletionTimestamp"):
            continue
        is_by_the_controller = record.kind == JOBS and _CONTROLLER_FINALIZER in (meta.get("finalizers") or ())
        return (_ALWAYS, _ALWAYS) if is_by_the_controller else (version_of(version), at)
    return (_ALWAYS, _ALWAYS) if record.ended is None else (record.ended, record.ended_at)


def _attempt(job: Object) -> int:
    """Returns how often all nodes of a TrainJob were restarted together."""
    status = status_of(job)
    return int((status.get("scaling") or {}).get("attempt", 0) if is_elastic(job) else status.get("restarts", 0))


def _reported_successes(job: ObjectRecord) -> dict[str, list[_Success]]:
    """Returns when the status first listed each replica as succeeded, for each restart attempt."""
    found: dict[str, dict[int, _Success]] = {}
    for version, at in zip(job.versions, job.times, strict=True):
        status = status_of(version)
        attempt = _attempt(version) if job.kind == TRAINJOBS else 0
        for each in status.get("succeededIndexes") or ():
            ended = ContainerEnd(version_of(version), at, 0, "", "", attempt)
            found.setdefault(each, {}).setdefault(attempt, _Success(ended))
    return {each: list(by_attempt.values()) for each, by_attempt in found.items()}
