"""What a job says of itself, from version to version: contradictions, ends that change, times that go back. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.facts import (
    FAILED,
    SUCCEEDED,
    conditions_of,
    expected_of,
    is_finished,
    moment,
    owners,
    phase_of,
    state_of,
    status_of,
    true_types,
)
from audit.jobs.history import History, Life, Object

_FIXED_AT_THE_END = ("phase", "state", "reason", "startTime", "completionTime", "restarts", "succeededIndexes")
_FIXED_IN_CLEAN_UP = ("state", "completionTime", "reason")
_STATE_OF_PHASE = {"Done": SUCCEEDED, "Failed": FAILED}


def wrong_states(history: History, skew_seconds: float = 0.0) -> Iterator[str]:
    """Each version of each job for itself, each against the one before it, and the last against what is expected.

    `skew_seconds`: the clock of who writes the times may have been set back by so much.
    """
    for job in owners(history):
        yield from unexpected(job)
        yield from _once(f"{job}: {fault}" for version in job.versions for fault in _faults(version, skew_seconds))
        yield from _both(job)
        for before, after in itertools.pairwise(job.versions):
            yield from (f"{job}: {fault}" for fault in _changes(before, after, skew_seconds))


def unexpected(job: Life) -> Iterator[str]:
    """A finished job that came to something else than its annotation says."""
    wanted, found = expected_of(job.last), state_of(job.last)
    if wanted and is_finished(job.last) and found != wanted:
        reason = status_of(job.last).get("reason", "")
        yield f"{job} should have come to {wanted}, and came to {found or 'nothing'}: {reason}"


def _once(lines: Iterator[str]) -> Iterator[str]:
    """The first of each kind: what one version says wrong, the next ones say too."""
    yield from dict.fromkeys(lines)


def _both(job: Life) -> Iterator[str]:
    said = set().union(*(true_types(version) for version in job.versions))
    if {SUCCEEDED, FAILED} <= said:
        yield f"{job} was both Succeeded and Failed"


def _faults(job: Object, skew_seconds: float) -> Iterator[str]:
    """Contradictions within one version."""
    types = [each["type"] for each in conditions_of(job)]
    if len(types) != len(set(types)):
        yield f"has a condition twice: {', '.join(sorted(types))}"
    yield from _end_faults(job)
    status = status_of(job)
    began, completed = moment(status.get("startTime")), moment(status.get("completionTime"))
    if began and completed and completed < began - skew_seconds:
        yield f"completed at {status['completionTime']}, before it started at {status['startTime']}"


def _end_faults(job: Object) -> Iterator[str]:
    phase, state, true = phase_of(job), state_of(job), true_types(job)
    verdicts = true & {SUCCEEDED, FAILED}
    if phase in _STATE_OF_PHASE:
        if state != _STATE_OF_PHASE[phase]:
            yield f"phase {phase} with state {state or 'nothing'}"
        if verdicts != {_STATE_OF_PHASE[phase]}:
            yield f"phase {phase} with {' and '.join(sorted(verdicts)) or 'neither Succeeded nor Failed'} True"
        if going_on := true & {"Running", "Restarting", "Resizing"}:
            yield f"phase {phase} with {' and '.join(sorted(going_on))} True"
        if not status_of(job).get("completionTime"):
            yield f"phase {phase} without completionTime"
    elif phase == "CleanUp":
        if verdicts and verdicts != {state}:
            yield f"phase CleanUp with state {state or 'nothing'} and {' and '.join(sorted(verdicts))} True"
    elif verdicts:
        yield f"phase {phase or 'empty'} with {' and '.join(sorted(verdicts))} True"


def _changes(before: Object, after: Object, skew_seconds: float) -> Iterator[str]:
    """What may not happen between one version and the next."""
    old, new = status_of(before), status_of(after)
    fixed = _FIXED_AT_THE_END if is_finished(before) else _FIXED_IN_CLEAN_UP if old.get("phase") == "CleanUp" else ()
    for name in fixed:
        if old.get(name) != new.get(name):
            yield f"changed after its end: {name} {old.get(name)} -> {new.get(name)}"
    for name in ("restarts", "observedGeneration"):
        if int(new.get(name, 0)) < int(old.get(name, 0)):
            yield f"{name} fell: {old.get(name)} -> {new.get(name, 0)}"
    yield from _forgotten(old, new)
    yield from _backward(before, after, skew_seconds)


def _forgotten(old: Object, new: Object) -> Iterator[str]:
    """Who has succeeded stays so, unless all are started anew: then `restarts` says it."""
    lost = set(old.get("succeededIndexes") or ()) - set(new.get("succeededIndexes") or ())
    if lost and new.get("restarts", 0) <= old.get("restarts", 0):
        yield f"forgot that {', '.join(sorted(lost))} had succeeded"


def _backward(before: Object, after: Object, skew_seconds: float) -> Iterator[str]:
    old = {each["type"]: each for each in conditions_of(before)}
    for each in conditions_of(after):
        known = old.pop(each["type"], None)
        if known is None:
            continue
        was, is_now = moment(known.get("lastTransitionTime")), moment(each.get("lastTransitionTime"))
        if is_now < was - skew_seconds:
            yield (
                f"condition {each['type']} went back in time: {known['lastTransitionTime']} -> "
                f"{each['lastTransitionTime']}"
            )
    for name in old:
        yield f"condition {name} vanished"
