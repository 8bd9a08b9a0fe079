"""Jobs that have not ended although nothing happens any more. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from audit.jobs.facts import chief_of, expected_of, has_ended, is_finished, is_suspended, phase_of, status_of
from audit.jobs.family import Family
from audit.jobs.history import GANGS, PODS

_WAITING_PHASES = ("", "Waiting", "Unschedulable")


def stuck(family: Family, since: float) -> Iterator[str]:
    """Yields a job that was expected to end, or that has no reason to wait and did not change since then."""
    job = family.job
    if job.ended is not None or is_finished(job.last):
        return
    text = f"{job} is in phase {phase_of(job.last) or 'none'}: {status_of(job.last).get('reason', '')}"
    if expected_of(job.last):
        yield f"{text}; it was expected to end as {expected_of(job.last)}"
    elif max(record.changed_at for record in (job, *family.children)) < since and not _may_wait(family):
        yield f"{text}; nothing changes"


def _may_wait(family: Family) -> bool:
    """Reports whether the job is suspended, waits for capacity, or has a pod that runs while its chief may succeed."""
    job = family.job.last
    if is_suspended(job):
        return True
    if family.is_tfjob and chief_of(job["spec"]) in family.successes():
        return False
    existing = [child for child in family.of(PODS, GANGS) if child.ended is None]
    return any(
        not has_ended(child.last) if child.kind == PODS else phase_of(child.last) in _WAITING_PHASES
        for child in existing
    )
