"""Jobs that have not ended although nothing happens any more. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator

from audit.jobs.facts import (
    Family,
    Replica,
    chief_of,
    expected_of,
    families,
    has_ended,
    is_finished,
    is_managed,
    phase_of,
    status_of,
    successes,
)
from audit.jobs.history import GANGS, PODS, TFJOBS, History

_WAITING_PHASES = ("", "Waiting", "Unschedulable")


def stuck(history: History, since: float) -> Iterator[str]:
    """Yields jobs that were expected to end, and jobs without a change since then that have no reason to wait.

    A job may wait if it is suspended, waits for capacity, or has a pod that has not ended, unless its chief has
    succeeded.
    """
    done = successes(history)
    for family in families(history):
        job = family.job
        if job.ended is not None or is_finished(job.last) or not is_managed(job.last):
            continue
        text = f"{job} is in phase {phase_of(job.last) or 'none'}: {status_of(job.last).get('reason', '')}"
        if expected_of(job.last):
            yield f"{text}; it was expected to end as {expected_of(job.last)}"
        elif max(record.changed_at for record in (job, *family.children)) < since and not _may_wait(family, done):
            yield f"{text}; nothing changes"


def _may_wait(family: Family, done: Container[Replica]) -> bool:
    job = family.job
    spec = job.last["spec"]
    if spec.get("suspend"):
        return True
    if job.kind == TFJOBS and Replica(job.uid, *chief_of(spec)) in done:
        return False
    existing = [record for record in family.children if record.ended is None]
    if any(record.kind == PODS and not has_ended(record.last) for record in existing):
        return True
    return any(
        record.kind == GANGS and status_of(record.last).get("phase", "") in _WAITING_PHASES for record in existing
    )
