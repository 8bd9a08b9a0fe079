"""Gangs that were partly bound for too long. Pure.

A member that was bound in an attempt, and whose pod then failed or was lost, is replaced alone. The gang does not count
as partly bound while that member waits for its next pod.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from audit.jobs.history import GANGS, PODS, History, Object, ObjectRecord, version_of
from audit.objects import Gang, Pod, gang_of, is_partly_bound, pod_of

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    at: float
    kind: str
    obj: Object
    is_deleted: bool


@dataclass(slots=True)
class _State:
    """The state of one gang while its changes are applied."""

    gang: Gang | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    # (attempt, member) of the members that have been bound or have ended.
    served: set[tuple[str, str]] = field(default_factory=set)

    def apply(self, change: _Change) -> None:
        if change.kind == GANGS:
            self.gang = None if change.is_deleted else gang_of(change.obj)
            return
        pod = pod_of(change.obj)
        if pod.node or pod.is_finished:
            self.served.add((pod.attempt, pod.member))
        self.pods[pod.uid] = pod
        if change.is_deleted:
            del self.pods[pod.uid]

    @property
    def is_partly_bound(self) -> bool:
        if self.gang is None:
            return False
        served = {member for attempt, member in self.served if attempt == self.gang.attempt}
        return is_partly_bound(self.gang, self.pods.values(), served)


def partial_for_too_long(history: History, outages: Sequence[float], deadline_seconds: float) -> Iterator[str]:
    """Yields gangs that were partly bound for longer than `deadline_seconds`, counted from the last outage."""
    for gang, began, ended in _partly_bound_times(history):
        if ended != _NEVER and _longest(began, ended, outages) > deadline_seconds:
            yield f"{gang} was partly bound for {ended - began:.1f} s"


def partial_now(history: History) -> Iterator[str]:
    """Yields gangs that are partly bound at the end of the history."""
    for gang, _, ended in _partly_bound_times(history):
        if ended == _NEVER:
            yield f"{gang} is partly bound"


def _partly_bound_times(history: History) -> Iterator[tuple[ObjectRecord, float, float]]:
    """Yields each gang with the begin and the end of each time in which it was partly bound."""
    pods: dict[str, list[ObjectRecord]] = {}
    for pod in history.of(PODS):
        pods.setdefault(f"{pod.namespace}/{pod_of(pod.versions[0]).gang.partition('/')[2]}", []).append(pod)
    for gang in history.of(GANGS):
        state, since = _State(), 0.0
        for change in _changes([gang, *pods.get(f"{gang.namespace}/{gang.name}", ())]):
            state.apply(change)
            if not state.is_partly_bound:
                if since:
                    yield gang, since, change.at
                since = 0.0
            elif not since:
                since = change.at
        if since:
            yield gang, since, _NEVER


def _changes(records: Sequence[ObjectRecord]) -> list[_Change]:
    """Returns the changes of the objects in the order in which the server wrote them."""
    versions = [
        _Change(version_of(obj), at, record.kind, obj, is_deleted=False)
        for record in records
        for obj, at in zip(record.versions, record.times, strict=True)
    ]
    deletions = [
        _Change(record.ended, record.ended_at, record.kind, record.last, is_deleted=True)
        for record in records
        if record.ended is not None
    ]
    # The deletion of an object follows its last version.
    return sorted([*versions, *deletions], key=lambda change: (change.version, change.is_deleted))


def _longest(began: float, ended: float, outages: Sequence[float]) -> float:
    """Returns the longest time without an outage between begin and end."""
    marks = [began, *sorted(at for at in outages if began < at < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(marks))
