"""What happened to TFJobs and their children, version by version, and what of that must never happen. Pure.

A `History` is filled with watch events (helpers/auditor.py does it on a real cluster). Versions are compared across
kinds: Kubernetes keeps one order for all. Where watching had a gap, lives are taken as short as they were surely seen,
so that a gap may hide a violation but never make one up.

`violations` knows nothing of the controller's code: it judges from what TFJobs, Jobs, Services and Pods said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Replica = tuple[str, str, str]  # the TFJob's uid, the replica type, the index

TFJOB, JOB, SERVICE, POD = "TFJob", "Job", "Service", "Pod"
FINISHED = ("Done", "Failed")
# Ends that are not the chief's doing.
_OTHER_ENDS = ("DeadlineExceeded", "BackoffLimitExceeded", "CreateRefused", "InvalidSpec")
_NEVER = float("inf")


@dataclass(slots=True)
class Life:
    """One object from its first version that was seen; `ended`: the version of its deletion, None while it lives."""

    kind: str
    versions: list[Object] = field(default_factory=list)
    ended: int | None = None

    @property
    def last(self) -> Object:
        return self.versions[-1]

    @property
    def uid(self) -> str:
        return str(self.last["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.last["metadata"]["name"])

    @property
    def begin(self) -> int:
        return version_of(self.versions[0])

    @property
    def end(self) -> float:
        return _NEVER if self.ended is None else self.ended

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.uid})"


class History:
    """All lives, by uid. One thread writes; read it when that has stopped, or take what is there."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}
        self.count = 0

    def record(self, kind: str, event: str, obj: Object) -> None:
        """A watch event: ADDED, MODIFIED or DELETED. One that was seen before changes nothing."""
        life = self._lives.setdefault(obj["metadata"]["uid"], Life(kind))
        if not life.versions or version_of(obj) > version_of(life.last):
            life.versions.append(obj)
            self.count += 1
        if event == "DELETED":
            life.ended = version_of(obj)

    def record_absent(self, kind: str, present: Collection[str]) -> None:
        """After a gap: those whose uid is not in `present` have ended, right after they were seen last."""
        for life in self.living(kind):
            if life.uid not in present:
                life.ended = version_of(life.last)

    def of(self, kind: str) -> list[Life]:
        return [life for life in list(self._lives.values()) if life.kind == kind]

    def living(self, kind: str) -> list[Life]:
        return [life for life in self.of(kind) if life.ended is None]

    def by_uid(self, uid: str) -> Life | None:
        return self._lives.get(uid)


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def violations(history: History, unfinished: Collection[str] = ()) -> list[str]:
    """Everything that went wrong, each in one line. `unfinished`: names of TFJobs that need not be at their end."""
    rules: tuple[Callable[[History], Iterator[str]], ...] = (
        duplicates,
        orphans,
        reruns,
        contradictions,
        wrong_ends,
        leftovers,
    )
    found = [line for rule in rules for line in rule(history)]
    return found + [line for line in _unfinished(history) if line.split()[1] not in unfinished]


# Rules


def duplicates(history: History) -> Iterator[str]:
    """No two children at once for one replica; no two names for one job's children; no name twice at once.

    Two pods of one child Job are no violation: a Job controller whose create got no answer makes another pod, and takes
    the surplus away.
    """
    for kind in (JOB, SERVICE):
        lives = history.of(kind)
        yield from _overlaps(lives, lambda life: _replica(history, life), lambda life: life.end, "for one replica")
        yield from _overlaps(lives, lambda life: life.name, lambda life: life.end, "under one name")
    yield from _overlapping_pods(history)
    for job in history.of(TFJOB):
        ids = {version["spec"]["RuntimeId"] for version in job.versions if version["spec"].get("RuntimeId")}
        if len(ids) > 1:
            yield f"{job} had several RuntimeIds: {sorted(ids)}"


def orphans(history: History) -> Iterator[str]:
    """Every child that lives has a controller that lives."""
    for kind in (JOB, SERVICE, POD):
        for life in history.living(kind):
            owner = _controller(life.last)
            found = history.by_uid(owner["uid"]) if owner else None
            if owner is None:
                yield f"orphan: {life} has no controller"
            elif found is None or found.ended is not None:
                yield f"orphan: {life} belongs to {owner['kind']} {owner['name']} ({owner['uid']}), which is gone"


def reruns(history: History) -> Iterator[str]:
    """A replica that succeeded, but for a parameter server, has no pod that begins later."""
    successes = _successes(history)
    for pod in history.of(POD):
        replica = _replica(history, pod)
        if replica is None or replica[1] == "PS" or replica not in successes:
            continue
        version, winner = successes[replica]
        if pod.begin > version and pod.uid != winner:
            yield f"rerun: {pod} began after replica {replica[1]}-{replica[2]} had succeeded"


def contradictions(history: History) -> Iterator[str]:
    """Never Succeeded and Failed, and an end is an end: phase, state and times stay as they are."""
    for job in history.of(TFJOB):
        said = [{each["type"] for each in _conditions(version) if each["status"] == "True"} for version in job.versions]
        if any({"Succeeded", "Failed"} <= types for types in said) or {"Succeeded", "Failed"} <= set().union(*said):
            yield f"{job} was both Succeeded and Failed"
        for before, after in itertools.pairwise(map(_status, job.versions)):
            changed = [
                f"{name} {before.get(name)} -> {after.get(name)}"
                for name in _fixed_in(before)
                if before.get(name) != after.get(name)
            ]
            if changed:
                yield f"{job} changed after its end: {', '.join(changed)}"


def wrong_ends(history: History) -> Iterator[str]:
    """A finished job's state is what its chief's pods did; what it remembers as succeeded did succeed."""
    successes = _successes(history)
    for job in history.of(TFJOB):
        status = _status(job.last)
        if status.get("phase") not in FINISHED:
            continue
        chief = (job.uid, *chief_of(job.last["spec"]))
        if status["state"] == "Succeeded" and chief not in successes:
            yield f"{job} says Succeeded, but no pod of its chief ended with 0"
        if status["state"] == "Failed":
            yield from _wrong_failure(history, job, chief, successes)
        if (status["phase"] == "Done") != (status["state"] == "Succeeded"):
            yield f"{job} ended in phase {status['phase']} with state {status['state']}"
        for replica_id in status.get("succeededIndexes") or ():
            role, _, index = replica_id.rpartition("-")
            if (job.uid, role.upper(), index) not in successes:
                yield f"{job} says that {replica_id} succeeded, but no pod of it ended with 0"


def leftovers(history: History) -> Iterator[str]:
    """No pod of a finished job runs on, unless it was to be left alone."""
    for pod in history.living(POD):
        replica = _replica(history, pod)
        job = history.by_uid(replica[0]) if replica else None
        if job is None or _status(job.last).get("phase") not in FINISHED or _end_of_activity(pod) != _NEVER:
            continue
        if job.last["spec"].get("cleanPodPolicy") != "None":
            yield f"{pod} still runs, though {job} is finished"


def _unfinished(history: History) -> Iterator[str]:
    for job in history.living(TFJOB):
        phase = _status(job.last).get("phase", "")
        if phase not in FINISHED:
            yield f"TFJob {job.name} is still in phase {phase!r}: {_status(job.last).get('reason', '')}"


# What pods say


def exits(pod: Life) -> Iterator[tuple[int, Object]]:
    """Each end of the training container that counts, with the first version that showed it."""
    seen: list[Object] = []
    for version in pod.versions:
        if version["metadata"].get("deletionTimestamp") or _is_disrupted(version):
            continue
        for status in version.get("status", {}).get("containerStatuses") or ():
            if status["name"] != "tensorflow":
                continue
            for state in (status.get("lastState"), status.get("state")):
                ended = (state or {}).get("terminated")
                if ended is not None and ended not in seen:
                    seen.append(ended)
                    yield version_of(version), ended


def chief_of(spec: Object) -> tuple[str, str]:
    """Replica type and index of the chief."""
    chief = (spec.get("terminationPolicy") or {}).get("chief") or {}
    types = [each.get("tfReplicaType", "MASTER") for each in spec["replicaSpecs"]]
    default = "MASTER" if "MASTER" in types else "WORKER"
    return chief.get("replicaName") or default, str(chief.get("replicaIndex") or 0)


def _successes(history: History) -> dict[Replica, tuple[int, str]]:
    """The version at which each replica had succeeded first, and the uid of the pod that did."""
    found: dict[Replica, tuple[int, str]] = {}
    for pod in history.of(POD):
        replica = _replica(history, pod)
        version = next((version for version, ended in exits(pod) if ended["exitCode"] == 0), None)
        if replica is not None and version is not None:
            found[replica] = min(found.get(replica, (version, pod.uid)), (version, pod.uid))
    return found


def _wrong_failure(
    history: History, job: Life, chief: Replica, successes: dict[Replica, tuple[int, str]]
) -> Iterator[str]:
    failed = next(version_of(version) for version in job.versions if _status(version).get("state") == "Failed")
    if chief in successes and successes[chief][0] < failed:
        yield f"{job} says Failed, but its chief had ended with 0"
    reasons = {each.get("reason") for each in _conditions(job.last) if each["type"] == "Failed"}
    if reasons & set(_OTHER_ENDS) or job.last["spec"].get("failurePolicy") == "AnyReplica":
        return
    pods = (pod for pod in history.of(POD) if _replica(history, pod) == chief)
    if not any(_is_permanent(ended) for pod in pods for _, ended in exits(pod)):
        yield f"{job} says Failed, but no pod of its chief ended with a permanent error"


def _is_permanent(ended: Object) -> bool:
    return 0 < ended["exitCode"] < 128 or ended.get("reason") == "OOMKilled"


def _is_disrupted(pod: Object) -> bool:
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in _conditions(pod))


def _end_of_activity(pod: Life) -> float:
    """When a pod ended, or was told to."""
    for version in pod.versions:
        over = version.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if over or version["metadata"].get("deletionTimestamp"):
            return version_of(version)
    return pod.end


# Who belongs to whom


def _controller(obj: Object) -> Object | None:
    owners: list[Object] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _replica(history: History, life: Life) -> Replica | None:
    """Whose child this is: by owner references, through the Job for a pod; None for strangers."""
    obj, owner = life.last, _controller(life.last)
    if life.kind == POD and owner is not None:
        job = history.by_uid(owner["uid"])
        owner = _controller(job.last) if job is not None else None
    labels = obj["metadata"].get("labels") or {}
    if owner is None or owner["kind"] != TFJOB or "task_index" not in labels:
        return None
    return owner["uid"], labels["job_type"], labels["task_index"]


def _overlaps(
    lives: Iterable[Life], key: Callable[[Life], object], end: Callable[[Life], float], words: str
) -> Iterator[str]:
    groups: dict[object, list[Life]] = {}
    for life in lives:
        if (group := key(life)) is not None:
            groups.setdefault(group, []).append(life)
    for group in groups.values():
        for first, second in itertools.pairwise(sorted(group, key=lambda life: life.begin)):
            if second.begin < end(first):
                yield f"duplicate: {first} and {second} {words} at once"


def _overlapping_pods(history: History) -> Iterator[str]:
    """Two Jobs, one after the other, whose pods ran for one replica at once."""
    groups: dict[Replica, list[Life]] = {}
    for pod in history.of(POD):
        if (replica := _replica(history, pod)) is not None:
            groups.setdefault(replica, []).append(pod)
    for group in groups.values():
        ordered = sorted(group, key=lambda life: life.begin)
        for first, second in itertools.combinations(ordered, 2):
            if second.begin < _end_of_activity(first) and _job_uid(first) != _job_uid(second):
                yield f"duplicate: {first} and {second} of two Jobs for one replica at once"


def _job_uid(pod: Life) -> str:
    owner = _controller(pod.last)
    return owner["uid"] if owner else ""


# Status


def _status(job: Object) -> Object:
    status: Object = job.get("status") or {}
    return status


def _conditions(obj: Object) -> list[Object]:
    found: list[Object] = (obj.get("status") or {}).get("conditions") or []
    return found


def _fixed_in(status: Object) -> tuple[str, ...]:
    """The fields that may not change any more. From CleanUp on the verdict stands; only the phase goes on."""
    if status.get("phase") in FINISHED:
        return ("phase", "state", "completionTime", "reason", "restarts", "succeededIndexes")
    return ("state", "completionTime", "reason") if status.get("phase") == "CleanUp" else ()
