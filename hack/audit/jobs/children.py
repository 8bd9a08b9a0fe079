"""Duplicates and orphans among what belongs to jobs. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

from audit.jobs.facts import (
    Replica,
    controller_of,
    indexed_role_of,
    is_finished,
    is_managed,
    is_ours,
    is_over,
    job_outcome,
    job_uid_of,
    kind_of_owner,
    labels_of,
    owners,
    pods_of,
    replica_of,
    status_of,
    stopped_at,
)
from audit.jobs.history import CHILDREN, CONFIG_MAPS, GANGS, JOBS, PODS, SECRETS, SERVICES, TFJOBS, History, Life
from audit.jobs.plans import is_planned


def duplicates(history: History) -> Iterator[str]:
    """No two children for one thing at once, none that the job's plan does not have, and one RuntimeId for each job.

    Two pods of one child Job are no violation: a Job controller whose create got no answer makes another pod, and takes
    the surplus away.
    """
    for kind in (JOBS, SERVICES):
        yield from _overlaps(
            history.of(kind),
            lambda life: replica_of(history, life) or indexed_role_of(history, life),
            "for one replica",
        )
    for kind in (CONFIG_MAPS, SECRETS, GANGS):
        yield from _overlaps(history.of(kind), lambda life: job_uid_of(history, life) or None, "for one job")
    yield from _overlapping_pods(history)
    yield from _runtime_ids(history)
    yield from _beyond_the_plan(history)


def orphans(history: History) -> Iterator[str]:
    """Each child that is there has an owner that is there, and is the one that its labels name."""
    for life in history.living(*CHILDREN):
        if not is_ours(life.last):
            continue
        reference = controller_of(life.last)
        owner = history.by_uid(reference["uid"]) if reference else None
        if reference is None:
            yield f"{life} has no controller"
        elif owner is None or owner.ended is not None:
            yield f"{life} belongs to {reference['kind']} {reference['name']} ({reference['uid']}), which is gone"
        elif owner.name != reference["name"] or owner.namespace != life.namespace:
            yield f"{life} names {reference['name']} as its owner with the uid of {owner}"
        elif kind_of_owner(reference) and (wrong := _wrong_name(life, owner)):
            yield f"{life} says that it belongs to {wrong}, and is owned by {owner}"


def leftovers(history: History) -> Iterator[str]:
    """Nothing of a finished job goes on: no pod, no Job that would make one, no Gang that holds room."""
    for life in history.living(PODS, JOBS, GANGS):
        owner = history.by_uid(job_uid_of(history, life))
        if owner is None or owner.ended is not None or not is_finished(owner.last) or not is_managed(owner.last):
            continue
        if life.kind == GANGS:
            if status_of(life.last).get("phase") in ("Admitted", "Bound"):
                yield f"{life} still holds room, though {owner} is finished"
        elif owner.last["spec"].get("cleanPodPolicy") == "None":
            continue
        elif life.kind == JOBS and not life.last["spec"]["suspend"] and not job_outcome(life.last):
            yield f"{life} is not stopped, though {owner} is finished"
        elif life.kind == PODS and not is_over(life.last) and not life.last["metadata"].get("deletionTimestamp"):
            yield f"{life} still runs, though {owner} is finished"


def _overlaps(lives: Iterable[Life], key: Callable[[Life], Hashable | None], words: str) -> Iterator[str]:
    groups: dict[Hashable, list[Life]] = {}
    for life in lives:
        if (group := key(life)) is not None:
            groups.setdefault(group, []).append(life)
    for same in groups.values():
        for first, second in itertools.pairwise(sorted(same, key=lambda life: life.begin)):
            if second.begin < first.end:
                yield f"{first} and {second} {words} at once"


def _overlapping_pods(history: History) -> Iterator[str]:
    """Two Jobs, one after the other, whose pods ran for one replica at once."""
    groups: dict[Replica, list[Life]] = {}
    for replica, pod in pods_of(history):
        groups.setdefault(replica, []).append(pod)
    for same in groups.values():
        ordered = sorted(same, key=lambda life: life.begin)
        for first, second in itertools.combinations(ordered, 2):
            if second.begin < stopped_at(first) and _job_of(first) != _job_of(second):
                yield f"{first} and {second} of two Jobs for one replica at once"


def _runtime_ids(history: History) -> Iterator[str]:
    ids: dict[str, set[str]] = {}
    for job in history.of(TFJOBS):
        said = {str(version["spec"].get("RuntimeId") or "") for version in job.versions} - {""}
        ids.setdefault(job.uid, set()).update(said)
    for life in history.of(*CHILDREN):
        if (uid := job_uid_of(history, life)) and (found := labels_of(life.last).get("runtime_id")):
            ids.setdefault(uid, set()).add(found)
    for uid, some in ids.items():
        if len(some) > 1:
            yield f"{history.by_uid(uid) or uid} had several RuntimeIds: {', '.join(sorted(some))}"


def _beyond_the_plan(history: History) -> Iterator[str]:
    jobs = {job.uid: job for job in owners(history)}
    for life in history.of(JOBS, SERVICES):
        job = jobs.get(job_uid_of(history, life))
        if job is None:
            continue
        if (shared := indexed_role_of(history, life)) is not None:
            yield from _beyond_the_role(job, life, shared[1])
            continue
        replica = replica_of(history, life)
        if replica is None or not life.name.endswith(_tail(replica, life)):
            yield f"{life} is named for no replica of {job}"
        elif not is_planned(job, replica):
            yield f"{life} is for {replica.id}, which the plan of {job} does not have"


def _beyond_the_role(job: Life, life: Life, role: str) -> Iterator[str]:
    """Checks the Job or Service of all replicas of a role."""
    runtime_id = labels_of(life.last).get("runtime_id", "")
    tail = f"-{role}-{runtime_id}" if life.kind == JOBS else f"-{runtime_id}"
    if not life.name.endswith(tail):
        yield f"{life} is named for no role of {job}"
    elif life.kind == JOBS and not is_planned(job, Replica(job.uid, role, life.last["spec"]["completions"] - 1)):
        yield f"{life} has {life.last['spec']['completions']} completions, more than the plan of {job}"


def _tail(replica: Replica, life: Life) -> str:
    return f"-{replica.role}-{labels_of(life.last).get('runtime_id', '')}-{replica.index}"


def _wrong_name(life: Life, owner: Life) -> str:
    """The job that the labels name, if it is another one than the owner."""
    label = "tf_job_name" if owner.kind == TFJOBS else "train_job_name"
    named = labels_of(life.last).get(label, "")
    return "" if owner.name.startswith(named) else named


def _job_of(pod: Life) -> str:
    owner = controller_of(pod.last)
    return str(owner["uid"]) if owner else ""
