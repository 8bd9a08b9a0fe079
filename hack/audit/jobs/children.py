"""Duplicates and orphans among the children of jobs. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from audit.jobs.facts import (
    controller_of,
    has_ended,
    is_finished,
    is_ours,
    is_suspended,
    job_outcome,
    kind_of_owner,
    labels_of,
    phase_of,
    replica_of,
    role_of,
    spec_of,
)
from audit.jobs.family import Family, grouped
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
    is_being_deleted,
)
from audit.jobs.plans import is_planned


def duplicates(family: Family) -> Iterator[str]:
    """Yields children that exist twice at a time or that their job's plan does not contain, and changed RuntimeIds."""
    for kind in (JOBS, SERVICES):
        groups = grouped(family.of(kind), lambda child: replica_of(child.last) or role_of(child.last))
        for same in (records for name, records in groups.items() if name):
            yield from _overlaps(same, "for one replica")
    for kind in (CONFIG_MAPS, SECRETS, GANGS):
        yield from _overlaps(family.of(kind), "for one job")
    yield from _runtime_ids(family)
    for child in family.of(JOBS, SERVICES):
        yield from _unplanned(family.job, child)


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


def leftovers(family: Family) -> Iterator[str]:
    """Yields pods and Jobs that still run, and Gangs that hold capacity, although their job has finished."""
    job = family.job
    if job.ended is not None or not is_finished(job.last):
        return
    are_kept = job.last["spec"].get("cleanPodPolicy") == "None"
    for child in family.of(PODS, JOBS, GANGS):
        if child.ended is not None:
            continue
        if child.kind == GANGS:
            # Pods that are kept still use the capacity of their gang.
            if phase_of(child.last) in ("Admitted", "Bound") and not (are_kept and _any_pod_runs(family)):
                yield f"{child} still holds capacity, although {job} has finished"
        elif are_kept:
            continue
        elif child.kind == JOBS and not is_suspended(child.last) and not job_outcome(child.last):
            yield f"{child} is not stopped, although {job} has finished"
        elif child.kind == PODS and not has_ended(child.last) and not is_being_deleted(child.last):
            yield f"{child} still runs, although {job} has finished"


def _any_pod_runs(family: Family) -> bool:
    return any(pod.ended is None and not has_ended(pod.last) for pod in family.of(PODS))


def _overlaps(records: Sequence[ObjectRecord], text: str) -> Iterator[str]:
    for first, second in itertools.pairwise(sorted(records, key=lambda record: record.begin)):
        if second.begin < first.end.version:
            yield f"{first} and {second} {text} at once"


def _runtime_ids(family: Family) -> Iterator[str]:
    ids = {str(version["spec"].get("RuntimeId") or "") for version in family.job.versions}
    ids |= {labels_of(child.last).get("runtime_id", "") for child in family.children}
    if len(ids - {""}) > 1:
        yield f"{family.job} had several RuntimeIds: {', '.join(sorted(ids - {''}))}"


def _unplanned(job: ObjectRecord, child: ObjectRecord) -> Iterator[str]:
    """Checks name and number of a Job or Service of one replica, or of all replicas of a role."""
    runtime_id = labels_of(child.last).get("runtime_id", "")
    if role := role_of(child.last):
        tail = f"-{role}-{runtime_id}" if child.kind == JOBS else f"-{runtime_id}"
        count = int(spec_of(child.last).get("completions") or 1) if child.kind == JOBS else 0
        if not child.name.endswith(tail):
            yield f"{child} is named for no role of {job}"
        elif count and not is_planned(job, f"{role}-{count - 1}"):
            yield f"{child} has {count} completions, more than the plan of {job}"
        return
    replica = replica_of(child.last)
    kind, _, index = replica.rpartition("-")
    if not replica or not child.name.endswith(f"-{kind}-{runtime_id}-{index}"):
        yield f"{child} is named for no replica of {job}"
    elif not is_planned(job, replica):
        yield f"{child} is for {replica}, which the plan of {job} does not have"


def _wrong_name(record: ObjectRecord, owner: ObjectRecord) -> str:
    """Returns the name of the job in the labels if it differs from the owner's; empty otherwise."""
    label = "tf_job_name" if owner.kind == TFJOBS else "train_job_name"
    named = labels_of(record.last).get(label, "")
    return "" if owner.name.startswith(named) else named
