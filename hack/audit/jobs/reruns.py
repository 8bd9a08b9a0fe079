"""Replicas that ran again after they had succeeded. Pure.

A **rerun** is a pod that was made for a replica after that replica had succeeded: its training container had ended with
0, its child Job was complete, or the job's status said so. It is allowed for

- a parameter server of a TFJob, which is started again until the chief is done;
- a node or launcher of a TrainJob whose set was restarted since: the pod carries a higher `kubeflow.org/generation`
  than the one that succeeded;
- a success that nobody could know of any more. Its witnesses are the pod, until it is deleted, and the complete Job,
  until that is. Where a user, or the Job controller for a suspension, has taken both before the status could name the
  replica, there is nothing left to tell of it. The controller has `reaction_seconds` to write the status, which begin
  anew with each outage. A Job that the controller itself deletes (in the foreground: users of `make chaos` do not)
  stays a witness: it must look before.

Not for a resume, nor a resize: replicas that have succeeded do not run again. A pod whose creation nobody saw, because
the server had forgotten where the watch stood, is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from audit.jobs.facts import (
    Ended,
    Replica,
    completions_of,
    controller_of,
    ends_of,
    generation_of,
    owners,
    pods_of,
    status_of,
)
from audit.jobs.history import JOBS, TFJOBS, TRAINJOBS, History, Life, version_of

_BY_THE_CONTROLLER = "foregroundDeletion"
_ALWAYS = float("inf")


@dataclass(frozen=True, slots=True)
class _Success:
    """`until`: the version from which on this witness says nothing any more; `until_at`: when that was seen."""

    ended: Ended
    until: float = _ALWAYS
    until_at: float = _ALWAYS


def reruns(history: History, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """See the module. `outages`: times at which one just happened."""
    known = _successes(history)
    said = {job.uid: _said_to_have_succeeded(job) for job in owners(history)}
    for replica, pod in pods_of(history):
        job = history.by_uid(replica.job)
        if job is None or not pod.is_begin_seen or (job.kind == TFJOBS and replica.role == "ps"):
            continue
        successes = (*known.get(replica, ()), *said[job.uid].get(replica.id, ()))
        made = [each for each in successes if _is_rerun(job, pod, each.ended)]
        if any(_could_be_known(history, pod, each, outages, reaction_seconds) for each in made):
            yield f"{pod} was made after {replica.id} of {job} had succeeded"


def _is_rerun(job: Life, pod: Life, ended: Ended) -> bool:
    if pod.begin <= ended.version or pod.uid == ended.pod:
        return False
    return job.kind == TFJOBS or generation_of(pod.last) <= ended.generation


def _could_be_known(
    history: History, pod: Life, success: _Success, outages: Sequence[float], reaction_seconds: float
) -> bool:
    """When the Job was made that made `pod`, or for as long as the controller may take."""
    child = history.by_uid(str((controller_of(pod.last) or {}).get("uid", "")))
    is_successor = child is not None and child.begin > success.ended.version
    if success.until > (child.begin if child is not None and is_successor else pod.begin):
        return True
    since = max([success.ended.at, *(at for at in outages if at < success.until_at)])
    return success.until_at - since > reaction_seconds


def _successes(history: History) -> dict[Replica, list[_Success]]:
    """By each witness."""
    found: dict[Replica, list[_Success]] = {}
    for replica, pod in pods_of(history):
        ends = (each for each in ends_of(pod) if each.exit_code == 0)
        found.setdefault(replica, []).extend(_Success(each, *_leaves(pod)) for each in ends)
    for job in history.of(JOBS):
        for replica, ended in completions_of(history, job):
            found.setdefault(replica, []).append(_Success(ended, *_leaves(job)))
    return found


def _leaves(life: Life) -> tuple[float, float]:
    """The version with which it is on its way out or gone, and when that was seen."""
    for version, at in zip(life.versions, life.times, strict=True):
        meta = version["metadata"]
        if not meta.get("deletionTimestamp"):
            continue
        is_by_the_controller = life.kind == JOBS and _BY_THE_CONTROLLER in (meta.get("finalizers") or ())
        return (_ALWAYS, _ALWAYS) if is_by_the_controller else (version_of(version), at)
    return (_ALWAYS, _ALWAYS) if life.ended is None else (life.ended, life.ended_at)


def _said_to_have_succeeded(job: Life) -> dict[str, list[_Success]]:
    """When the status named each replica first, for each generation."""
    found: dict[str, dict[int, _Success]] = {}
    for version, at in zip(job.versions, job.times, strict=True):
        status = status_of(version)
        generation = int(status.get("restarts", 0)) if job.kind == TRAINJOBS else 0
        for each in status.get("succeededIndexes") or ():
            ended = Ended(version_of(version), at, 0, "", "", generation)
            found.setdefault(each, {}).setdefault(generation, _Success(ended))
    return {each: list(by_generation.values()) for each, by_generation in found.items()}
