"""Jobs that are not over when all is. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator

from audit.jobs.facts import (
    Family,
    Replica,
    chief_of,
    expected_of,
    families,
    is_finished,
    is_managed,
    is_over,
    phase_of,
    status_of,
    successes,
)
from audit.jobs.history import GANGS, PODS, TFJOBS, History

_WAITS_FOR_ROOM = ("", "Waiting", "Unschedulable")


def stuck(history: History, since: float) -> Iterator[str]:
    """Jobs that should have come to an end, and those of which nothing has moved since then though they could.

    A job may rest that is suspended, waits for room, or has a pod that is not over, unless its chief has succeeded.
    """
    done = successes(history)
    for family in families(history):
        job = family.job
        if job.ended is not None or is_finished(job.last) or not is_managed(job.last):
            continue
        text = f"{job} is in phase {phase_of(job.last) or 'none'}: {status_of(job.last).get('reason', '')}"
        if expected_of(job.last):
            yield f"{text}; it should have come to {expected_of(job.last)}"
        elif max(life.moved_at for life in (job, *family.children)) < since and not _may_rest(family, done):
            yield f"{text}; nothing moves"


def _may_rest(family: Family, done: Container[Replica]) -> bool:
    job = family.job
    spec = job.last["spec"]
    if spec.get("suspend"):
        return True
    if job.kind == TFJOBS and Replica(job.uid, *chief_of(spec)) in done:
        return False
    there = [life for life in family.children if life.ended is None]
    if any(life.kind == PODS and not is_over(life.last) for life in there):
        return True
    return any(life.kind == GANGS and status_of(life.last).get("phase", "") in _WAITS_FOR_ROOM for life in there)
