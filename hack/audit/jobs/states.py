"""Contradictions in the status of a job, results that change, and times that go backwards. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.facts import (
    FAILED,
    SUCCEEDED,
    conditions_of,
    expected_of,
    is_elastic,
    is_finished,
    phase_of,
    restarts_of,
    state_of,
    status_of,
    succeeded_replicas,
    true_conditions,
)
from audit.jobs.family import Family
from audit.jobs.history import Object
from audit.objects import epoch_seconds
from tfjob_controller.api.gang import index_of, kind_of

_FIXED_IN_CLEAN_UP = ("state", "completionTime", "reason")
_FIXED_AT_THE_END = (*_FIXED_IN_CLEAN_UP, "phase", "startTime", "restarts", "disruptions", "succeededIndexes")
_STATE_OF_PHASE = {"Done": SUCCEEDED, "Failed": FAILED}


def wrong_states(family: Family, skew_seconds: float) -> Iterator[str]:
    """Yields violations of each version of a job, of each change, and of the expected result.

    `skew_seconds` is how far the clock of the controller may have been set back.
    """
    job = family.job
    wanted, state = expected_of(job.last), state_of(job.last)
    if wanted and is_finished(job.last) and state != wanted:
        reason = status_of(job.last).get("reason", "")
        yield f"{job} was expected to end as {wanted}, and ended as {state or 'nothing'}: {reason}"
    # Later versions repeat the same violation.
    faults = dict.fromkeys(fault for version in job.versions for fault in _faults(version, skew_seconds))
    yield from (f"{job}: {fault}" for fault in faults)
    if {SUCCEEDED, FAILED} <= {name for version in job.versions for name in true_conditions(version)}:
        yield f"{job} was both Succeeded and Failed"
    for before, after in itertools.pairwise(job.versions):
        yield from (f"{job}: {fault}" for fault in _changes(before, after, skew_seconds))


def _faults(job: Object, skew_seconds: float) -> Iterator[str]:
    """Yields contradictions within one version."""
    types = [condition["type"] for condition in conditions_of(job)]
    if len(types) != len(set(types)):
        yield f"has a condition twice: {', '.join(sorted(types))}"
    yield from _end_faults(job)
    status = status_of(job)
    began, completed = epoch_seconds(status.get("startTime")), epoch_seconds(status.get("completionTime"))
    if began and completed and completed < began - skew_seconds:
        yield f"completed at {status['completionTime']}, before it started at {status['startTime']}"
    disruptions = int(status.get("disruptions", 0))
    if disruptions > restarts_of(job):
        yield f"{disruptions} of {restarts_of(job)} restarts are disruptions"


def _end_faults(job: Object) -> Iterator[str]:
    phase, state, true = phase_of(job), state_of(job), true_conditions(job).keys()
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
    fixed = _FIXED_AT_THE_END if is_finished(before) else _FIXED_IN_CLEAN_UP if phase_of(before) == "CleanUp" else ()
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
    lost = set(succeeded_replicas(before)) - set(succeeded_replicas(after))
    if is_elastic(after):
        counts = {step["name"]: step.get("replicas", 0) for step in status_of(after).get("jobsStatus") or ()}
        lost = {replica for replica in lost if (index_of(replica) or 0) < counts.get(kind_of(replica), 0)}
    if lost and restarts_of(after) <= restarts_of(before):
        yield f"no longer lists {', '.join(sorted(lost))} as succeeded"


def _backward_times(before: Object, after: Object, skew_seconds: float) -> Iterator[str]:
    old = {condition["type"]: condition.get("lastTransitionTime") for condition in conditions_of(before)}
    new = {condition["type"]: condition.get("lastTransitionTime") for condition in conditions_of(after)}
    for name, since in old.items():
        if name not in new:
            yield f"condition {name} vanished"
        elif epoch_seconds(new[name]) < epoch_seconds(since) - skew_seconds:
            yield f"condition {name} went backwards in time: {since} -> {new[name]}"
