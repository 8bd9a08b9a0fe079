"""Compares the restarts that a job counts with those that its pods and Jobs show. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.ends import ended_on_request, failed_by_itself, restarts_in_place
from audit.jobs.facts import (
    FAILED,
    RESTART_ATTEMPT,
    SUCCEEDED,
    is_disrupted,
    is_elastic,
    is_suspended,
    labels_of,
    phase_of,
    restart_attempt_of,
    restarts_of,
    status_of,
    succeeded_replicas,
    terminations,
    true_conditions,
)
from audit.jobs.family import Family, controller_uid
from audit.jobs.history import GANGS, JOBS, NEVER, PODS, Moment, Object, ObjectRecord, is_being_deleted, version_of

_ENDING_PHASES = ("CleanUp", "Done", "Failed")
# A restart in place may remain uncounted if the job ends right after it.
_NOTICED_SECONDS = 10.0


def uncaused_restarts(family: Family) -> Iterator[str]:
    """Yields a job whose `status.restarts` exceeds the failures and losses of pods and Jobs."""
    most = max(map(restarts_of, family.job.versions))
    if family.is_tfjob:
        causes = bad_ends(family)
    elif is_elastic(family.job.last):
        # Nodes are replaced one by one, or restarted together, also because their Job was deleted.
        causes = bad_ends(family) + sum(child.deletion != NEVER for child in family.of(JOBS))
    else:
        causes = _bad_attempts(family)
    if most > causes:
        yield f"{family.job} counts {most} restarts, but its pods account for {causes}"


def uncounted_restarts(family: Family) -> Iterator[str]:
    """Yields a TFJob whose `status.restarts` is less than the restarts that its pods show without doubt.

    Each end that another pod follows is one, except for those that a suspension or the deletion of a child Job may have
    caused. A TrainJob restarts its nodes under the number of the restart, so its pods cannot show more.
    """
    job = family.job
    if not family.is_tfjob:
        return
    noticed_until = min(job.first(_is_ending).at, job.times[-1]) - _NOTICED_SECONDS
    shown = sum(restarts_in_place(pod, noticed_until) for pod in family.of(PODS))
    for pods in family.pods.values():
        shown += sum(_is_certainly_replaced(family, *pair) for pair in itertools.pairwise(pods))
    if restarts_of(job.last) < shown:
        yield f"{job} counts {restarts_of(job.last)} restarts, but its pods show {shown}"


def spent_limits(family: Family) -> Iterator[str]:
    """Yields a job that counts more errors of programs than its pods show, or has failed by a limit too early."""
    job, status, spec = family.job, status_of(family.job.last), family.job.last["spec"]
    errors = _own_errors(family)
    counted = restarts_of(job.last) - int(status.get("disruptions", 0))
    if counted > errors:
        yield f"{job} counts {counted} restarts that are no disruptions, but its pods show {errors} errors"
    limit = spec.get("backoffLimit" if family.is_tfjob else "maxRestarts")
    is_exceeded = true_conditions(job.last).get(FAILED) == "BackoffLimitExceeded"
    if is_exceeded and limit is not None and errors <= limit:
        yield f"{job} reports BackoffLimitExceeded, but its pods show {errors} errors, and its limit is {limit}"


def ends_counted_twice(family: Family) -> Iterator[str]:
    """Yields a TFJob that lists a replica as succeeded although it has counted the end of its pod as a restart.

    A pod that the Job controller deletes because it has created one too many ends, while the other one goes on.
    """
    counts: dict[str, int] = {}
    counted: dict[str, int] = {}
    for version in family.job.versions if family.is_tfjob else ():
        for replica in succeeded_replicas(version):
            own = family.pods.get(replica, ())
            pod = next((pod for pod in reversed(own) if pod.begin < version_of(version)), None)
            if pod is None or any(other is not pod and other.end.version > pod.begin for other in own):
                continue
            if pod.begin < counted.pop(replica, 0) and not restarts_in_place(pod):
                yield f"{family.job} counts the end of {pod} as a restart, and then lists {replica} as succeeded"
        new: dict[str, int] = status_of(version).get("restartCounts") or {}
        counted |= {replica: version_of(version) for replica, count in new.items() if count > counts.get(replica, 0)}
        counts = new


def bad_ends(family: Family) -> int:
    """Returns the number of restarts in place and of pods that ended, as counted by the Job or as observed.

    Each Job starts one pod, and each end is one restart, however many objects show it.
    """
    in_place = sum(map(restarts_in_place, family.of(PODS)))
    replaced: dict[str, int] = {}
    for pod in filter(_ended_badly, family.of(PODS)):
        replaced[controller_uid(pod)] = replaced.get(controller_uid(pod), 0) + 1
    jobs = {child.uid: _failures(child) for child in family.of(JOBS)}
    return in_place + sum(max(replaced.get(uid, 0), jobs.get(uid, 0)) for uid in replaced.keys() | jobs.keys())


def _bad_attempts(family: Family) -> int:
    """Returns the number of restart attempts in which something failed; each of them restarts all replicas once."""
    bad = [*filter(_ended_badly, family.of(PODS)), *filter(_failures, family.of(JOBS))]
    return len({restart_attempt_of(record.last) for record in bad} | set(_attempts_with_deleted_jobs(family)))


def _attempts_with_deleted_jobs(family: Family) -> Iterator[int]:
    """Yields restart attempts of which a user deleted a child Job; the product does so only after counting the restart.

    The pod may have exited with 0 unnoticed, or may not have been created yet. Jobs of a gang are also deleted by the
    product, and no restart counts for one without a pod.
    """
    for child in family.of(JOBS) if not family.of(GANGS) else ():
        attempt = restart_attempt_of(child.last)
        counted = _counted_at(family.job, attempt + 1)
        if RESTART_ATTEMPT in labels_of(child.last) and child.deletion < counted != NEVER:
            yield attempt


def _counted_at(job: ObjectRecord, restarts: int) -> Moment:
    """Returns when the job first counted so many restarts."""
    return job.first(lambda version: restarts_of(version) >= restarts)


def _is_certainly_replaced(family: Family, pod: ObjectRecord, following: ObjectRecord) -> bool:
    job = family.job_of(pod)
    if job is None or RESTART_ATTEMPT in labels_of(pod.last) or _was_stopped(family.job, pod, following):
        return False
    return pod.first(_is_over) < min(job.first(is_suspended), job.deletion)


def _was_stopped(job: ObjectRecord, pod: ObjectRecord, following: ObjectRecord) -> bool:
    """Reports whether the job was suspended, or its number of workers changed, between two pods of a replica."""
    before = [version for version in job.versions if version_of(version) <= following.begin]
    sizes = {version["spec"].get("workerReplicas") for version in before}
    return len(sizes) > 1 or any(is_suspended(version) for version in before if version_of(version) >= pod.begin)


def _own_errors(family: Family) -> int:
    """Returns how many ends of programs may count against a limit; of TrainJobs, how many attempts had one."""
    pods = family.of(PODS)
    failed = [pod for pod in pods if failed_by_itself(pod) or _has_stopped_serving(pod)]
    if not family.is_tfjob and not is_elastic(family.job.last):
        return len({restart_attempt_of(pod.last) for pod in failed})
    return len(failed) + sum(map(restarts_in_place, pods))


def _ended_badly(pod: ObjectRecord) -> bool:
    """Reports whether another pod must take this one's place, not counting restarts in place.

    It failed, was disrupted or was deleted before its program had succeeded, or it was to serve.
    """
    if any(map(is_disrupted, pod.versions)) or ended_on_request(pod):
        return True
    phase = phase_of(pod.last)
    if phase == SUCCEEDED:
        return _has_stopped_serving(pod)
    is_deleted = pod.ended is not None or is_being_deleted(pod.last)
    errors = (ended["exitCode"] for ended in terminations(status_of(pod.last).get("containerStatuses") or (), "state"))
    return phase == FAILED or is_deleted or any(errors)


def _has_stopped_serving(pod: ObjectRecord) -> bool:
    return phase_of(pod.last) == SUCCEEDED and labels_of(pod.last).get("job_type") == "PS"


def _is_over(pod: Object) -> bool:
    return phase_of(pod) == FAILED or is_disrupted(pod) or is_being_deleted(pod)


def _is_ending(job: Object) -> bool:
    return phase_of(job) in _ENDING_PHASES


def _failures(child: ObjectRecord) -> int:
    return max(int(status_of(version).get("failed", 0)) for version in child.versions)
