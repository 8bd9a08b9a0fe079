"""A job with all its children: what the rules judge. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from audit.jobs.ends import End, ends_of
from audit.jobs.facts import (
    SUCCEEDED,
    completed_indexes,
    controller_of,
    is_finished,
    job_outcome,
    kind_of_owner,
    replica_of,
    restart_attempt_of,
    role_of,
)
from audit.jobs.history import CHILDREN, JOBS, OWNERS, PODS, TFJOBS, History, Object, ObjectRecord

# A gap is noticed once the server responds again.
_GAP_IS_KNOWN_SECONDS = 120.0


@dataclass(frozen=True)
class Family:
    """A TFJob or TrainJob and its children, including deleted ones. A replica has a name such as `worker-3`.

    `may_lack_changes`: a gap between the begin of the job and some time after its end may have hidden some.
    """

    job: ObjectRecord
    children: Sequence[ObjectRecord]
    may_lack_changes: bool

    @property
    def is_tfjob(self) -> bool:
        return self.job.kind == TFJOBS

    def of(self, *kinds: str) -> list[ObjectRecord]:
        return [record for record in self.children if record.kind in kinds]

    @cached_property
    def pods(self) -> Mapping[str, list[ObjectRecord]]:
        """The pods of each replica, in the order of their creation."""
        pods = sorted(self.of(PODS), key=lambda pod: pod.begin)
        return {replica: same for replica, same in grouped(pods, lambda pod: replica_of(pod.last)).items() if replica}

    def job_of(self, pod: ObjectRecord) -> ObjectRecord | None:
        """Returns the child Job that a pod belongs to."""
        return next((child for child in self.of(JOBS) if child.uid == controller_uid(pod)), None)

    def completions(self) -> Iterator[tuple[str, End]]:
        """Yields when a child Job first reported the success of each of its replicas."""
        for job in self.of(JOBS):
            reported: set[str] = set()
            for version, moment in job.moments():
                for replica in _completed_replicas(version):
                    if replica not in reported:
                        reported.add(replica)
                        yield replica, End(job, moment, restart_attempt_of(version))

    def successes(self, *, include_late_reports: bool = False) -> dict[str, list[End]]:
        """Returns the ends of each replica with exit code 0, by pods (`ends_of`) and Jobs; the earliest first."""
        successes: dict[str, list[End]] = {}
        for replica, pods in self.pods.items():
            ends = (end for pod in pods for end in ends_of(pod, include_late_reports=include_late_reports))
            successes[replica] = [end for end in ends if end.exit_code == 0]
        for replica, end in self.completions():
            successes.setdefault(replica, []).append(end)
        return {replica: sorted(ends, key=lambda end: end.moment) for replica, ends in successes.items() if ends}


def families(history: History) -> list[Family]:
    children = grouped(history.of(*CHILDREN), lambda record: _job_uid_of(history, record))
    return [Family(job, children.get(job.uid, ()), _may_have_gap(history, job)) for job in history.of(*OWNERS)]


def grouped(records: Iterable[ObjectRecord], key: Callable[[ObjectRecord], str]) -> dict[str, list[ObjectRecord]]:
    groups: dict[str, list[ObjectRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def controller_uid(record: ObjectRecord) -> str:
    """Returns the uid of the object that controls this one; empty for none."""
    return str((controller_of(record.last) or {}).get("uid", ""))


def _completed_replicas(job: Object) -> list[str]:
    if role := role_of(job):
        return [f"{role}-{index}" for index in completed_indexes(job)]
    replica = replica_of(job)
    return [replica] if replica and job_outcome(job) == SUCCEEDED else []


def _job_uid_of(history: History, record: ObjectRecord) -> str:
    """Returns the uid of the TFJob or TrainJob, for a pod through its Job; empty for other objects."""
    owner = _last_controller(record)
    if record.kind == PODS and owner is not None:
        job = history.by_uid(owner["uid"])
        owner = _last_controller(job) if job is not None else None
    return str(owner["uid"]) if owner is not None and kind_of_owner(owner) else ""


def _last_controller(record: ObjectRecord) -> Object | None:
    """Returns the controlling owner reference, or the last one if it was removed."""
    return next(filter(None, map(controller_of, reversed(record.versions))), None)


def _may_have_gap(history: History, job: ObjectRecord) -> bool:
    return history.had_gap(job.times[0], job.first(is_finished).at + _GAP_IS_KNOWN_SECONDS)
