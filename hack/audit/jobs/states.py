"""Contradictions in the status of a job, results that change, and times that go backwards. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.facts import (
    FAILED,
    SUCCEEDED,
    conditions_of,
    epoch_seconds,
    expected_of,
    is_finished,
    owners,
    phase_of,
    state_of,
    status_of,
    true_types,
)
from audit.jobs.history import History, Object, ObjectRecord
from audit.jobs.plans import is_elastic
from tfjob_controller.api.gang import index_of, kind_of

_FIXED_AT_THE_END = (
    "phase",
    "state",
    "reason",
    "startTime",
    "completionTime",
    "restarts",
    "disruptions",
    "succeededIndexes",
)
_FIXED_IN_CLEAN_UP = ("state", "completionTime", "reason")
_STATE_OF_PHASE = {"Done": SUCCEEDED, "Failed": FAILED}


def wrong_states(history: History, skew_seconds: float = 0.0) -> Iterator[str]:
    """Yields violations of each version of each job, of each change, and of the expected result.

    `skew_seconds` is how far the clock of the controller may have been set back.
    """
    for job in owners(history):
        yield from unexpected(job)
        yield from _once(f"{job}: {fault}" for version in job.versions for fault in _faults(version, skew_seconds))
        yield from _both(job)
        for before, after in itertools.pairwise(job.versions):
            yield from (f"{job}: {fault}" for fault in _changes(before, after, skew_seconds))


def unexpected(job: ObjectRecord) -> Iterator[str]:
    """Yields a finished job whose result is not the expected one."""
    wanted, found = expected_of(job.last), state_of(job.last)
    if wanted and is_finished(job.last) and found != wanted:
        reason = status_of(job.last).get("reason", "")
        yield f"{job} was expected to end as {wanted}, and ended as {found or 'nothing'}: {reason}"


def _once(lines: Iterator[str]) -> Iterator[str]:
    """Yields each line once, since later versions repeat the same violation."""
    yield from dict.fromkeys(lines)


def _both(job: ObjectRecord) -> Iterator[str]:
    types = set().union(*(true_types(version) for version in job.versions))
    if {SUCCEEDED, FAILED} <= types:
        yield f"{job} was both Succeeded and Failed"


def _faults(job: Object, skew_seconds: float) -> Iterator[str]:
    """Yields contradictions within one version."""
    types = [each["type"] for each in conditions_of(job)]
    if len(types) != len(set(types)):
        yield f"has a condition twice: {', '.join(sorted(types))}"
    yield from _end_faults(job)
    status = status_of(job)
    began, completed = epoch_seconds(status.get("startTime")), epoch_seconds(status.get("completionTime"))
    if began and completed and completed < began - skew_seconds:
        yield f"completed at {status['completionTime']}, before it started at {status['startTime']}"
    restarts, disruptions = int(status.get("restarts", 0)), int(status.get("disruptions", 0))
    if disruptions > restarts:
        yield f"{disruptions} of {restarts} restarts are disruptions"


def _end_faults(job: Object) -> Iterator[str]:
    phase, state, true = phase_of(job), state_of(job), true_types(job)
    results = true & {SUCCEEDED, FAILED}
    if phase in _STATE_OF_PHASE:
        if state != _STATE_OF_PHASE[phase]:
            yield f"phase {phase} with state {state or 'nothing'}"
        if results != {_STATE_OF_PHASE[phase]}:
            yield f"phase {phase} with {' and '.join(sorted(results)) or 'neither Succeeded nor Failed'} True"
        if active := true & {"Running", "Restarting", "Resizing"}:
            yield f"phase {phase} with {' and '.join(sorted(active))} True"
        if not status_of(job).get("completionTime"):
            yield f"phase {phase} without completionTime"
    elif phase == "CleanUp":
        if results and results != {state}:
            yield f"phase CleanUp with state {state or 'nothing'} and {' and '.join(sorted(results))} True"
    elif results:
        yield f"phase {phase or 'empty'} with {' and '.join(sorted(results))} True"


def _changes(before: Object, after: Object, skew_seconds: float) -> Iterator[str]:
    """Yields changes that are not allowed between two versions."""
    old, new = status_of(before), status_of(after)
    fixed = _FIXED_AT_THE_END if is_finished(before) else _FIXED_IN_CLEAN_UP if old.get("phase") == "CleanUp" else ()
    for name in fixed:
        if old.get(name) != new.get(name):
            yield f"changed after its end: {name} {old.get(name)} -> {new.get(name)}"
    for name in ("restarts", "disruptions", "observedGeneration"):
        if int(new.get(name, 0)) < int(old.get(name, 0)):
            yield f"{name} decreased: {old.get(name)} -> {new.get(name, 0)}"
    yield from _lost_successes(before, after)
    yield from _backward_times(before, after, skew_seconds)


def _lost_successes(before: Object, after: Object) -> Iterator[str]:
    """Yields replicas that are no longer listed as succeeded.

    Allowed are those of a job whose `restarts` show that all were restarted, and nodes that an elastic job, by the same
    status, does not have any more.
    """
    old, new = status_of(before), status_of(after)
    lost = set(old.get("succeededIndexes") or ()) - set(new.get("succeededIndexes") or ())
    if is_elastic(after):
        counts = {each["name"]: each.get("replicas", 0) for each in new.get("jobsStatus") or ()}
        lost = {each for each in lost if (index_of(each) or 0) < counts.get(kind_of(each), 0)}
    if lost and new.get("restarts", 0) <= old.get("restarts", 0):
        yield f"no longer lists {', '.join(sorted(lost))} as succeeded"


def _backward_times(before: Object, after: Object, skew_seconds: float) -> Iterator[str]:
    old = {each["type"]: each for each in conditions_of(before)}
    for each in conditions_of(after):
        known = old.pop(each["type"], None)
        if known is None:
            continue
        was, is_now = epoch_seconds(known.get("lastTransitionTime")), epoch_seconds(each.get("lastTransitionTime"))
        if is_now < was - skew_seconds:
            yield (
                f"condition {each['type']} went backwards in time: {known['lastTransitionTime']} -> "
                f"{each['lastTransitionTime']}"
            )
    for name in old:
        yield f"condition {name} vanished"
