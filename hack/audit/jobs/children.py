"""Duplicates and orphans among the children of jobs. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

from audit.jobs.facts import (
    Replica,
    controller_of,
    has_ended,
    indexed_role_of,
    is_finished,
    is_lost_at,
    is_managed,
    is_ours,
    job_outcome,
    job_uid_of,
    kind_of_owner,
    labels_of,
    owners,
    pods_of,
    replica_of,
    runs_since,
    runs_until,
    status_of,
)
from audit.jobs.history import (
    CHILDREN,
    CONFIG_MAPS,
    GANGS,
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    TFJOBS,
    History,
    ObjectRecord,
)
from audit.jobs.plans import is_planned


def duplicates(history: History) -> Iterator[str]:
    """Yields children that exist twice at a time or that their job's plan does not contain, and changed RuntimeIds.

    Two pods of one child Job are allowed: a Job controller whose create request got no response creates another pod,
    and deletes one of them later.
    """
    for kind in (JOBS, SERVICES):
        yield from _overlaps(
            history.of(kind),
            lambda record: replica_of(history, record) or indexed_role_of(history, record),
            "for one replica",
        )
    for kind in (CONFIG_MAPS, SECRETS, GANGS):
        yield from _overlaps(history.of(kind), lambda record: job_uid_of(history, record) or None, "for one job")
    yield from _overlapping_pods(history)
    yield from _runtime_ids(history)
    yield from _unplanned(history)


def orphans(history: History) -> Iterator[str]:
    """Yields children whose owner does not exist, or is another one than their labels name."""
    for record in history.existing(*CHILDREN):
        if not is_ours(record.last):
            continue
        reference = controller_of(record.last)
        owner = history.by_uid(reference["uid"]) if reference else None
        if reference is None:
            yield f"{record} has no controller"
        elif owner is None or owner.ended is not None:
            missing = f"{reference['kind']} {reference['name']} ({reference['uid']})"
            yield f"{record} belongs to {missing}, which does not exist"
        elif owner.name != reference["name"] or owner.namespace != record.namespace:
            yield f"{record} names {reference['name']} as its owner with the uid of {owner}"
        elif kind_of_owner(reference) and (wrong := _wrong_name(record, owner)):
            yield f"{record} has the labels of {wrong} and is owned by {owner}"


def leftovers(history: History) -> Iterator[str]:
    """Yields pods and Jobs that still run, and Gangs that hold capacity, although their job has finished."""
    for record in history.existing(PODS, JOBS, GANGS):
        owner = history.by_uid(job_uid_of(history, record))
        if owner is None or owner.ended is not None or not is_finished(owner.last) or not is_managed(owner.last):
            continue
        if record.kind == GANGS:
            if status_of(record.last).get("phase") in ("Admitted", "Bound"):
                yield f"{record} still holds capacity, although {owner} has finished"
        elif owner.last["spec"].get("cleanPodPolicy") == "None":
            continue
        elif record.kind == JOBS and not record.last["spec"]["suspend"] and not job_outcome(record.last):
            yield f"{record} is not stopped, although {owner} has finished"
        elif (
            record.kind == PODS and not has_ended(record.last) and not record.last["metadata"].get("deletionTimestamp")
        ):
            yield f"{record} still runs, although {owner} has finished"


def _overlaps(
    records: Iterable[ObjectRecord], key: Callable[[ObjectRecord], Hashable | None], text: str
) -> Iterator[str]:
    groups: dict[Hashable, list[ObjectRecord]] = {}
    for record in records:
        if (group := key(record)) is not None:
            groups.setdefault(group, []).append(record)
    for same in groups.values():
        for first, second in itertools.pairwise(sorted(same, key=lambda record: record.begin)):
            if second.begin < first.end:
                yield f"{first} and {second} {text} at once"


def _overlapping_pods(history: History) -> Iterator[str]:
    """Yields pods of two Jobs for one replica whose containers may have run at the same time.

    A pod that is being deleted runs until its end is reported, or its node counts as lost.
    """
    groups: dict[Replica, list[ObjectRecord]] = {}
    for replica, pod in pods_of(history):
        groups.setdefault(replica, []).append(pod)
    for same in groups.values():
        ordered = sorted(same, key=runs_since)
        for first, second in itertools.combinations(ordered, 2):
            if _job_of(first) == _job_of(second) or runs_since(second) >= runs_until(first):
                continue
            if not is_lost_at(first, second.times[0]):
                yield f"{first} and {second} of two Jobs for one replica at once"


def _runtime_ids(history: History) -> Iterator[str]:
    ids: dict[str, set[str]] = {}
    for job in history.of(TFJOBS):
        values = {str(version["spec"].get("RuntimeId") or "") for version in job.versions} - {""}
        ids.setdefault(job.uid, set()).update(values)
    for record in history.of(*CHILDREN):
        if (uid := job_uid_of(history, record)) and (found := labels_of(record.last).get("runtime_id")):
            ids.setdefault(uid, set()).add(found)
    for uid, values in ids.items():
        if len(values) > 1:
            yield f"{history.by_uid(uid) or uid} had several RuntimeIds: {', '.join(sorted(values))}"


def _unplanned(history: History) -> Iterator[str]:
    jobs = {job.uid: job for job in owners(history)}
    for record in history.of(JOBS, SERVICES):
        job = jobs.get(job_uid_of(history, record))
        if job is None:
            continue
        if (shared := indexed_role_of(history, record)) is not None:
            yield from _beyond_the_role(job, record, shared[1])
            continue
        replica = replica_of(history, record)
        if replica is None or not record.name.endswith(_name_suffix(replica, record)):
            yield f"{record} is named for no replica of {job}"
        elif not is_planned(job, replica):
            yield f"{record} is for {replica.id}, which the plan of {job} does not have"


def _beyond_the_role(job: ObjectRecord, record: ObjectRecord, role: str) -> Iterator[str]:
    """Checks the Job or Service of all replicas of a role."""
    runtime_id = labels_of(record.last).get("runtime_id", "")
    tail = f"-{role}-{runtime_id}" if record.kind == JOBS else f"-{runtime_id}"
    if not record.name.endswith(tail):
        yield f"{record} is named for no role of {job}"
    elif record.kind == JOBS and not is_planned(job, Replica(job.uid, role, record.last["spec"]["completions"] - 1)):
        yield f"{record} has {record.last['spec']['completions']} completions, more than the plan of {job}"


def _name_suffix(replica: Replica, record: ObjectRecord) -> str:
    return f"-{replica.role}-{labels_of(record.last).get('runtime_id', '')}-{replica.index}"


def _wrong_name(record: ObjectRecord, owner: ObjectRecord) -> str:
    """Returns the name of the job in the labels if it differs from the owner's; empty otherwise."""
    label = "tf_job_name" if owner.kind == TFJOBS else "train_job_name"
    named = labels_of(record.last).get(label, "")
    return "" if owner.name.startswith(named) else named


def _job_of(pod: ObjectRecord) -> str:
    owner = controller_of(pod.last)
    return str(owner["uid"]) if owner else ""
