"""Gangs of which a part was bound for too long. Pure.

A member that was bound once in an attempt, and whose pod then failed or was lost, is replaced alone: while it waits for
its next pod, the gang is not called partly bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from audit.jobs.history import GANGS, PODS, History, Life, Object, version_of
from audit.objects import Gang, Pod, gang_of, is_partly_bound, pod_of

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    at: float
    kind: str
    obj: Object
    is_gone: bool


@dataclass(slots=True)
class _State:
    """Of one gang while its changes are told."""

    gang: Gang | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    # (attempt, member) of those that were bound ever, or ended.
    served: set[tuple[str, str]] = field(default_factory=set)

    def tell(self, change: _Change) -> None:
        if change.kind == GANGS:
            self.gang = None if change.is_gone else gang_of(change.obj)
            return
        pod = pod_of(change.obj)
        if pod.node or pod.is_finished:
            self.served.add((pod.attempt, pod.member))
        self.pods[pod.uid] = pod
        if change.is_gone:
            del self.pods[pod.uid]

    @property
    def is_partly_bound(self) -> bool:
        if self.gang is None:
            return False
        served = {member for attempt, member in self.served if attempt == self.gang.attempt}
        return is_partly_bound(self.gang, self.pods.values(), served)


def partial_for_too_long(history: History, outages: Sequence[float], deadline_seconds: float) -> Iterator[str]:
    """Gangs that were partly bound for longer than `deadline_seconds`, which begin anew with each outage."""
    for gang, began, ended in _stretches(history):
        if ended != _NEVER and _longest(began, ended, outages) > deadline_seconds:
            yield f"{gang} was bound in part for {ended - began:.1f} s"


def partial_now(history: History) -> Iterator[str]:
    for gang, _, ended in _stretches(history):
        if ended == _NEVER:
            yield f"{gang} is bound in part"


def _stretches(history: History) -> Iterator[tuple[Life, float, float]]:
    """Each gang with the times from which and until which it was partly bound."""
    pods: dict[str, list[Life]] = {}
    for pod in history.of(PODS):
        pods.setdefault(f"{pod.namespace}/{pod_of(pod.versions[0]).gang.partition('/')[2]}", []).append(pod)
    for gang in history.of(GANGS):
        state, since = _State(), 0.0
        for change in _changes([gang, *pods.get(f"{gang.namespace}/{gang.name}", ())]):
            state.tell(change)
            if not state.is_partly_bound:
                if since:
                    yield gang, since, change.at
                since = 0.0
            elif not since:
                since = change.at
        if since:
            yield gang, since, _NEVER


def _changes(lives: Sequence[Life]) -> list[_Change]:
    """In the order in which the server wrote them."""
    found = [
        _Change(version_of(obj), at, life.kind, obj, is_gone=False)
        for life in lives
        for obj, at in zip(life.versions, life.times, strict=True)
    ]
    gone = [
        _Change(life.ended, life.ended_at, life.kind, life.last, is_gone=True)
        for life in lives
        if life.ended is not None
    ]
    # What has gone comes after the last version of it.
    return sorted([*found, *gone], key=lambda change: (change.version, change.is_gone))


def _longest(began: float, ended: float, outages: Sequence[float]) -> float:
    """The longest time without an outage between the two."""
    marks = [began, *sorted(at for at in outages if began < at < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(marks))
