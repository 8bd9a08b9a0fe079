"""Compares what pods did with what jobs report: restarts and results. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from audit.jobs.facts import (
    FAILED,
    RESTART_ATTEMPT,
    SUCCEEDED,
    Family,
    Replica,
    chief_of,
    controller_of,
    deciding_statuses,
    ended_on_request,
    ends_of,
    failed_by_itself,
    families,
    is_disrupted,
    is_finished,
    is_managed,
    job_outcome,
    labels_of,
    phase_of,
    pods_of,
    reason_of,
    replica_of,
    restart_attempt_of,
    state_of,
    status_of,
    successes,
)
from audit.jobs.history import GANGS, JOBS, PODS, TFJOBS, TRAINJOBS, History, Object, ObjectRecord, version_of
from audit.jobs.plans import is_elastic, node_count

# Reasons of the condition Failed that require a pod that ended with an error.
_BY_PODS = ("ReplicaFailed", "BackoffLimitExceeded")
_ENDING_PHASES = ("CleanUp", "Done", "Failed")
_UNKNOWN = "ContainerStatusUnknown"
# A restart in place may remain uncounted if the job ends right after it.
_NOTICED_SECONDS = 10.0
# A gap is noticed once the server responds again.
_GAP_IS_KNOWN_SECONDS = 120.0


def uncaused_restarts(history: History) -> Iterator[str]:
    """Yields jobs whose `status.restarts` exceeds the failures and losses of pods and Jobs."""
    for family in families(history):
        job = family.job
        most = max(int(status_of(version).get("restarts", 0)) for version in job.versions)
        if not most or _may_have_gap(history, job):
            continue
        causes = _bad_attempts(family) if job.kind == TRAINJOBS else _bad_ends(family)
        if is_elastic(job.last):
            # Nodes are replaced one by one, or restarted together, also because their Job was deleted.
            causes = _bad_ends(family) + sum(_deleted_at(child) < float("inf") for child in family.of(JOBS))
        if most > causes:
            yield f"{job} counts {most} restarts, but its pods account for {causes}"


def uncounted_restarts(history: History) -> Iterator[str]:
    """Yields TFJobs whose `status.restarts` is less than the restarts that their pods show without doubt.

    Each end that another pod follows is one, except for those that a suspension or the deletion of a child Job may have
    caused. A TrainJob restarts its nodes under the number of the restart, so its pods cannot show more.
    """
    for family in families(history):
        job = family.job
        if job.kind != TFJOBS or not is_managed(job.last) or _may_have_gap(history, job):
            continue
        shown = sum(map(_certain_restarts, _pods_by_replica(history, family), itertools.repeat(family)))
        if int(status_of(job.last).get("restarts", 0)) < shown:
            yield f"{job} counts {status_of(job.last).get('restarts', 0)} restarts, but its pods show {shown}"


def spent_limits(history: History) -> Iterator[str]:
    """Yields jobs that count more errors of programs than their pods show, or have failed by a limit too early."""
    for family in families(history):
        job = family.job
        if not is_managed(job.last) or _may_have_gap(history, job):
            continue
        status, spec, errors = status_of(job.last), job.last["spec"], _own_errors(family)
        counted = int(status.get("restarts", 0)) - int(status.get("disruptions", 0))
        if counted > errors:
            yield f"{job} counts {counted} restarts that are no disruptions, but its pods show {errors} errors"
        limit = spec.get("backoffLimit" if job.kind == TFJOBS else "maxRestarts")
        is_exceeded = reason_of(job.last, FAILED) == "BackoffLimitExceeded"
        if is_exceeded and limit is not None and errors <= limit:
            yield f"{job} reports BackoffLimitExceeded, but its pods show {errors} errors, and its limit is {limit}"


def ends_counted_twice(history: History) -> Iterator[str]:
    """Yields TFJobs that list a replica as succeeded although they have counted the end of its pod as a restart.

    A pod that the Job controller deletes because it has created one too many ends, while the other one goes on.
    """
    for family in families(history):
        job, counts = family.job, dict[str, int]()
        counted: dict[str, int] = {}
        for version in job.versions if job.kind == TFJOBS else ():
            status = status_of(version)
            for name in status.get("succeededIndexes") or ():
                role, _, index = name.rpartition("-")
                replica = Replica(job.uid, role, int(index))
                own = [pod for pod in family.of(PODS) if replica_of(history, pod) == replica]
                pod = max((each for each in own if each.begin < version_of(version)), key=_begin, default=None)
                if pod is None or any(other is not pod and other.end > pod.begin for other in own):
                    continue
                if pod.begin < counted.pop(name, 0) and not _restarts_in_place(pod):
                    yield f"{job} counts the end of {pod} as a restart, and then lists {name} as succeeded"
            new: dict[str, int] = status.get("restartCounts") or {}
            counted |= {name: version_of(version) for name, count in new.items() if count > counts.get(name, 0)}
            counts = new


def _begin(record: ObjectRecord) -> int:
    return record.begin


def _pods_by_replica(history: History, family: Family) -> Collection[list[ObjectRecord]]:
    found: dict[Replica | None, list[ObjectRecord]] = {}
    for pod in sorted(family.of(PODS), key=lambda pod: pod.begin):
        found.setdefault(replica_of(history, pod), []).append(pod)
    return found.values()


def _certain_restarts(pods: Sequence[ObjectRecord], family: Family) -> int:
    """Returns how often a replica was restarted; `pods` are its pods in the order of their creation."""
    job = family.job
    ends = (at for at, version in zip(job.times, job.versions, strict=True) if phase_of(version) in _ENDING_PHASES)
    noticed_until = next(ends, job.times[-1]) - _NOTICED_SECONDS
    by_pods = sum(_certainly_replaced(*pair, family) for pair in itertools.pairwise(pods))
    return by_pods + sum(_restarts_in_place(pod, noticed_until) for pod in pods)


def _certainly_replaced(pod: ObjectRecord, following: ObjectRecord, family: Family) -> bool:
    own = str((controller_of(pod.last) or {}).get("uid", ""))
    job = next((child for child in family.of(JOBS) if child.uid == own), None)
    took_place = (each for each in pod.versions if _is_over(each))
    ended = next((version_of(each) for each in took_place), None)
    if (
        job is None
        or ended is None
        or RESTART_ATTEMPT in labels_of(pod.last)
        or _was_stopped(family.job, pod, following)
    ):
        return False
    stopped = (version_of(each) for each in job.versions if (each.get("spec") or {}).get("suspend"))
    return ended < min(next(stopped, _deleted_at(job)), _deleted_at(job))


def _is_over(pod: Object) -> bool:
    is_being_deleted = bool(pod["metadata"].get("deletionTimestamp"))
    return status_of(pod).get("phase") == FAILED or is_disrupted(pod) or is_being_deleted


def _was_stopped(job: ObjectRecord, pod: ObjectRecord, following: ObjectRecord) -> bool:
    """Reports whether the job was suspended, or its number of workers changed, between two pods of a replica."""
    before = [each for each in job.versions if version_of(each) <= following.begin]
    sizes = {each["spec"].get("workerReplicas") for each in before}
    return len(sizes) > 1 or any(each["spec"].get("suspend") for each in before if version_of(each) >= pod.begin)


def _own_errors(family: Family) -> int:
    """Returns how many ends of programs may count against a limit; of TrainJobs, how many attempts had one."""
    pods = list(family.of(PODS))
    failed = [pod for pod in pods if failed_by_itself(pod) or _has_stopped_serving(pod)]
    if family.job.kind == TRAINJOBS and not is_elastic(family.job.last):
        return len({restart_attempt_of(pod.last) for pod in failed})
    return len(failed) + sum(map(_restarts_in_place, pods))


def _may_have_gap(history: History, job: ObjectRecord) -> bool:
    """Reports whether a gap between the begin of a job and some time after its end may have hidden causes."""
    ends = (at for at, version in zip(job.times, job.versions, strict=True) if is_finished(version))
    return history.had_gap(job.times[0], next(ends, float("inf")) + _GAP_IS_KNOWN_SECONDS)


def _bad_ends(family: Family) -> int:
    """Returns the number of restarts in place and of pods that ended, as counted by the Job or as observed.

    Each Job starts one pod, and each end is one restart, however many objects show it.
    """
    in_place = sum(map(_restarts_in_place, family.of(PODS)))
    replaced: dict[str, int] = {}
    for pod in family.of(PODS):
        if _ended_badly(pod):
            uid = str((controller_of(pod.last) or {}).get("uid", ""))
            replaced[uid] = replaced.get(uid, 0) + 1
    jobs = {child.uid: _failures(child) for child in family.of(JOBS)}
    return in_place + sum(max(replaced.get(uid, 0), jobs.get(uid, 0)) for uid in replaced.keys() | jobs.keys())


def _bad_attempts(family: Family) -> int:
    """Returns the number of restart attempts in which something failed; each of them restarts all replicas once."""
    bad = {restart_attempt_of(pod.last) for pod in family.of(PODS) if _ended_badly(pod)}
    failed = {restart_attempt_of(child.last) for child in family.of(JOBS) if _failures(child)}
    return len(bad | failed | set(_attempts_with_deleted_jobs(family)))


def _attempts_with_deleted_jobs(family: Family) -> Iterator[int]:
    """Yields restart attempts of which a user deleted a child Job; the product does so only after counting the restart.

    The pod may have exited with 0 unnoticed, or may not have been created yet. Jobs of a gang are also deleted by the
    product, and no restart counts for one without a pod.
    """
    if any(family.of(GANGS)):
        return
    for child in family.of(JOBS):
        attempt = restart_attempt_of(child.last)
        counted = _counted_at(family.job, attempt + 1)
        if RESTART_ATTEMPT in labels_of(child.last) and counted is not None and _deleted_at(child) < counted:
            yield attempt


def _counted_at(job: ObjectRecord, restarts: int) -> int | None:
    """Returns the first version of the job with so many restarts."""
    versions = (version_of(each) for each in job.versions if int(status_of(each).get("restarts", 0)) >= restarts)
    return next(versions, None)


def _deleted_at(child: ObjectRecord) -> float:
    """Returns the version at which the deletion of a child began."""
    going = (version_of(each) for each in child.versions if each["metadata"].get("deletionTimestamp"))
    return next(going, child.end)


def _restarts_in_place(pod: ObjectRecord, until: float = float("inf")) -> int:
    """Returns how often training and init containers were restarted in their pod, as observed before that time."""
    seen = (version for version, at in zip(pod.versions, pod.times, strict=True) if at < until)
    return max((sum(map(_restart_count, deciding_statuses(version))) for version in seen), default=0)


def _restart_count(container: Object) -> int:
    """Returns the kubelet's count without the one for a container that it cannot locate and has not started again."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    is_lost = last.get("reason") == _UNKNOWN and not (container.get("state") or {}).get("running")
    ended = (container.get("state") or {}).get("terminated") or {"reason": _UNKNOWN}
    return int(container.get("restartCount", 0)) - (is_lost and ended["reason"] == _UNKNOWN)


def _ended_badly(pod: ObjectRecord) -> bool:
    """Reports whether another pod must take this one's place, not counting restarts in place.

    It failed, was disrupted or was deleted before its program had succeeded, or it was to serve.
    """
    if any(is_disrupted(version) for version in pod.versions) or ended_on_request(pod):
        return True
    phase = status_of(pod.last).get("phase")
    if phase == SUCCEEDED:
        return _has_stopped_serving(pod)
    is_deleted = pod.ended is not None or "deletionTimestamp" in pod.last["metadata"]
    return phase == FAILED or is_deleted or any(map(_has_failed, _containers(pod.last)))


def _has_stopped_serving(pod: ObjectRecord) -> bool:
    return status_of(pod.last).get("phase") == SUCCEEDED and labels_of(pod.last).get("job_type") == "PS"


def _has_failed(container: Object) -> bool:
    return bool(((container.get("state") or {}).get("terminated") or {}).get("exitCode"))


def _containers(pod: Object) -> list[Object]:
    found: list[Object] = status_of(pod).get("containerStatuses") or []
    return found


def _failures(child: ObjectRecord) -> int:
    return max(int(status_of(version).get("failed", 0)) for version in child.versions)


def wrong_ends(history: History) -> Iterator[str]:
    """Yields jobs whose result or `succeededIndexes` no pod accounts for. Jobs with a gap are not judged."""
    known = successes(history, include_late_reports=True)
    for family in families(history):
        job = family.job
        if not is_managed(job.last) or _may_have_gap(history, job):
            continue
        if is_finished(job.last) and state_of(job.last) == SUCCEEDED:
            for each in _required_replicas(history, family):
                if each not in known:
                    yield f"{job} reports Succeeded, but no pod of {each.id} exited with 0"
        if is_finished(job.last) and state_of(job.last) == FAILED:
            yield from _wrong_failures(history, family)
        for name in status_of(job.last).get("succeededIndexes") or ():
            role, _, index = name.rpartition("-")
            if Replica(job.uid, role, int(index)) not in known:
                yield f"{job} reports that {name} succeeded, but no pod of it exited with 0"


def missed_successes(history: History, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """Yields TFJobs that failed although their chief had succeeded, by a deadline or another replica.

    Within `reaction_seconds`, which start again with each outage, the controller may not have observed the success.
    Whether the chief was allowed to run again is judged by `audit.jobs.reruns`, and the result of a rerun does not
    count here.
    """
    known = successes(history)
    last_created: dict[Replica, int] = {}
    for replica, pod in pods_of(history):
        last_created[replica] = max(last_created.get(replica, 0), pod.begin)
    for job in history.of(TFJOBS):
        seen = zip(job.versions, job.times, strict=True)
        failed = next((at for version, at in seen if state_of(version) == FAILED), None)
        chief = Replica(job.uid, *chief_of(job.last["spec"]))
        ends = [each for each in known.get(chief, ()) if each.version > last_created.get(chief, 0)]
        if failed is None or not ends or not is_managed(job.last) or _may_have_gap(history, job):
            continue
        since = max([ends[0].at, *(at for at in outages if at < failed)])
        if failed - since > reaction_seconds:
            yield f"{job} reports Failed, but its chief had exited with 0"


def _required_replicas(history: History, family: Family) -> Iterator[Replica]:
    """Yields the replicas whose success makes the job succeed."""
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
        yield f"{job} reports DeadlineExceeded, but has no deadline"
    if reason in _BY_PODS and not _has_error(history, family, _deciding_replicas(job, reason)):
        yield f"{job} reports {reason}, but no pod ended with such an error"


def _deciding_replicas(job: ObjectRecord, reason: str) -> set[Replica] | None:
    """Returns the replicas whose permanent error makes the job fail; None if an error of any replica does."""
    spec: Object = job.last["spec"]
    if job.kind == TRAINJOBS or reason != "ReplicaFailed" or spec.get("failurePolicy") == "AnyReplica":
        return None
    return {Replica(job.uid, *chief_of(spec))}


def _has_error(history: History, family: Family, deciding: set[Replica] | None) -> bool:
    if deciding is None:
        return bool(_bad_ends(family))
    own = [record for record in family.children if replica_of(history, record) in deciding]
    has_failed = any(
        job_outcome(version) == FAILED for record in own if record.kind == JOBS for version in record.versions
    )
    return has_failed or any(ended.is_permanent for record in own if record.kind == PODS for ended in ends_of(record))
