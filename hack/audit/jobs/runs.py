"""What pods did, and what jobs say that they did: restarts, verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.jobs.facts import (
    FAILED,
    GENERATION,
    SUCCEEDED,
    Family,
    Replica,
    chief_of,
    controller_of,
    ends_of,
    families,
    generation_of,
    is_disrupted,
    is_finished,
    is_managed,
    job_outcome,
    labels_of,
    pods_of,
    reason_of,
    replica_of,
    state_of,
    status_of,
    successes,
)
from audit.jobs.history import GANGS, JOBS, PODS, TFJOBS, TRAINJOBS, History, Life, Object, version_of
from audit.jobs.plans import node_count

# Reasons of the condition Failed for which a pod has to have ended with an error.
_BY_PODS = ("ReplicaFailed", "BackoffLimitExceeded")
# A gap is known when the server answers again.
_GAP_IS_KNOWN_SECONDS = 120.0


def uncaused_restarts(history: History) -> Iterator[str]:
    """`status.restarts` is at most what pods and Jobs can account for."""
    for family in families(history):
        job = family.job
        most = max(int(status_of(version).get("restarts", 0)) for version in job.versions)
        if not most or _is_unseen(history, job):
            continue
        causes = _bad_generations(family) if job.kind == TRAINJOBS else _bad_ends(family)
        if most > causes:
            yield f"{job} counts {most} restarts, and its pods account for {causes}"


def _is_unseen(history: History, job: Life) -> bool:
    """Whether there was a gap from its begin to its end, or so soon after it that it may have hidden what led to it."""
    ends = (at for at, version in zip(job.times, job.versions, strict=True) if is_finished(version))
    return history.had_gap(job.times[0], next(ends, float("inf")) + _GAP_IS_KNOWN_SECONDS)


def _bad_ends(family: Family) -> int:
    """Restarts in place, and pods that were to be replaced: as many as the Job counted, or as were seen."""
    in_place = sum(map(_restarts_in_place, family.of(PODS)))
    replaced: dict[str, int] = {}
    for pod in family.of(PODS):
        if _ended_badly(pod):
            uid = str((controller_of(pod.last) or {}).get("uid", ""))
            replaced[uid] = replaced.get(uid, 0) + 1
    jobs = {child.uid: _failures(child) for child in family.of(JOBS)}
    return in_place + sum(max(replaced.get(uid, 0), jobs.get(uid, 0)) for uid in replaced.keys() | jobs.keys())


def _bad_generations(family: Family) -> int:
    """A set is restarted once for each generation of it in which something went wrong."""
    bad = {generation_of(pod.last) for pod in family.of(PODS) if _ended_badly(pod)}
    failed = {generation_of(child.last) for child in family.of(JOBS) if _failures(child)}
    return len(bad | failed | set(_bereft(family)))


def _bereft(family: Family) -> Iterator[int]:
    """Generations of which somebody deleted a child Job: the product does so only once the restart is on record.

    Its pod may have ended with 0 before anybody knew, or may not have been made yet. A gang's Jobs are deleted by the
    product as well, and no restart is counted for one without a pod.
    """
    if any(family.of(GANGS)):
        return
    for child in family.of(JOBS):
        generation = generation_of(child.last)
        counted = _counted_at(family.job, generation + 1)
        if GENERATION in labels_of(child.last) and counted is not None and _gone_at(child) < counted:
            yield generation


def _counted_at(job: Life, restarts: int) -> int | None:
    """The version of the job that said so first."""
    said = (version_of(each) for each in job.versions if int(status_of(each).get("restarts", 0)) >= restarts)
    return next(said, None)


def _gone_at(child: Life) -> float:
    """The version at which it was deleted, whether it stayed for its pods or not."""
    going = (version_of(each) for each in child.versions if each["metadata"].get("deletionTimestamp"))
    return next(going, child.end)


def _restarts_in_place(pod: Life) -> int:
    """Of all its containers."""
    return max(sum(int(each.get("restartCount", 0)) for each in _containers(version)) for version in pod.versions)


def _ended_badly(pod: Life) -> bool:
    """Whether its end, not one that a restart in place followed, was a failure or was not its own."""
    if any(is_disrupted(version) for version in pod.versions):
        return True
    phase = status_of(pod.last).get("phase")
    is_leaving = pod.ended is not None or "deletionTimestamp" in pod.last["metadata"]
    return phase == FAILED or (phase != SUCCEEDED and (is_leaving or any(map(_has_failed, _containers(pod.last)))))


def _has_failed(container: Object) -> bool:
    return bool(((container.get("state") or {}).get("terminated") or {}).get("exitCode"))


def _containers(pod: Object) -> list[Object]:
    found: list[Object] = status_of(pod).get("containerStatuses") or []
    return found


def _failures(child: Life) -> int:
    return max(int(status_of(version).get("failed", 0)) for version in child.versions)


def wrong_ends(history: History) -> Iterator[str]:
    """A verdict is what pods did; who is remembered as succeeded did succeed. Not judged where something was unseen."""
    known = successes(history, also_told_late=True)
    for family in families(history):
        job = family.job
        if not is_managed(job.last) or _is_unseen(history, job):
            continue
        if is_finished(job.last) and state_of(job.last) == SUCCEEDED:
            for each in _needed(history, family):
                if each not in known:
                    yield f"{job} says Succeeded, but no pod of {each.id} ended with 0"
        if is_finished(job.last) and state_of(job.last) == FAILED:
            yield from _wrong_failures(history, family)
        for name in status_of(job.last).get("succeededIndexes") or ():
            role, _, index = name.rpartition("-")
            if Replica(job.uid, role, int(index)) not in known:
                yield f"{job} says that {name} succeeded, but no pod of it ended with 0"


def missed_successes(history: History, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """A TFJob whose chief has succeeded does not fail any more: not for a deadline, nor for another replica's end.

    Within `reaction_seconds`, which begin anew with each outage, its controller may not have seen the success. Whether
    a chief may have run again after it is not judged here (`audit.jobs.reruns`), and so not what it then ended with.
    """
    known = successes(history)
    begun: dict[Replica, int] = {}
    for replica, pod in pods_of(history):
        begun[replica] = max(begun.get(replica, 0), pod.begin)
    for job in history.of(TFJOBS):
        seen = zip(job.versions, job.times, strict=True)
        failed = next((at for version, at in seen if state_of(version) == FAILED), None)
        chief = Replica(job.uid, *chief_of(job.last["spec"]))
        ends = [each for each in known.get(chief, ()) if each.version > begun.get(chief, 0)]
        if failed is None or not ends or not is_managed(job.last) or _is_unseen(history, job):
            continue
        since = max([ends[0].at, *(at for at in outages if at < failed)])
        if failed - since > reaction_seconds:
            yield f"{job} says Failed, but its chief had ended with 0"


def _needed(history: History, family: Family) -> Iterator[Replica]:
    """Whose success is the job's."""
    job = family.job
    if job.kind == TFJOBS:
        yield Replica(job.uid, *chief_of(job.last["spec"]))
        return
    children = {replica_of(history, child) for child in family.of(JOBS)}
    launcher, exporter = Replica(job.uid, "launcher", 0), Replica(job.uid, "model-exporter", 0)
    if launcher in children:
        yield launcher
    else:
        yield from (Replica(job.uid, "node", index) for index in range(node_count(job.last)))
    if exporter in children:
        yield exporter


def _wrong_failures(history: History, family: Family) -> Iterator[str]:
    job = family.job
    reason, spec = reason_of(job.last, FAILED), job.last["spec"]
    if reason == "DeadlineExceeded" and not spec.get("activeDeadlineSeconds"):
        yield f"{job} says DeadlineExceeded, and has no deadline"
    if reason in _BY_PODS and not _has_error(history, family, _deciders(job, reason)):
        yield f"{job} says {reason}, but no pod ended with such an error"


def _deciders(job: Life, reason: str) -> set[Replica] | None:
    """Those of which one must have ended with a permanent error; None: any of them, with any."""
    spec: Object = job.last["spec"]
    if job.kind == TRAINJOBS or reason != "ReplicaFailed" or spec.get("failurePolicy") == "AnyReplica":
        return None
    return {Replica(job.uid, *chief_of(spec))}


def _has_error(history: History, family: Family, deciders: set[Replica] | None) -> bool:
    if deciders is None:
        return bool(_bad_ends(family))
    own = [life for life in family.children if replica_of(history, life) in deciders]
    has_failed = any(job_outcome(version) == FAILED for life in own if life.kind == JOBS for version in life.versions)
    return has_failed or any(ended.is_permanent for life in own if life.kind == PODS for ended in ends_of(life))
