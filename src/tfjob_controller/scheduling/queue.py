"""Who comes first: priority, then age, then name; and who has waited so long that others must step back.

A gang's age counts from `status.queuedTime`, which an attempt that failed does not set back, or else from its
creation. A gang that rests after a failed attempt (`status.requeueTime`) keeps its place but is not considered.

No rest is longer than `REST_CAP_SECONDS`: whatever says so was written by another clock, or by hand, and is no rest.

A gang of a higher priority always comes first, so a stream of such can hold a lower one back for ever: that is what
priorities are for. Among equals nobody starves, since whoever has waited longest gets all room that it could use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import key_of
from tfjob_controller.util.timestamps import parse_time_or_none

# The longest rest after a failed attempt.
MAX_BACKOFF_SECONDS = 60.0
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang in the queue, and since when it counts as waiting."""

    key: str
    gang: Gang
    since: datetime

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it rests after an attempt that failed."""
        return backoff_seconds(self.gang, now) > 0

    def waiting_seconds(self, now: datetime) -> float:
        """How long it has waited; not below 0, whatever the clocks say."""
        return max((now - self.since).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class NominatedNodes:
    """Nodes that no other gang may be placed on until this one has started: `decide` is told.

    `given` is by node what it will take there, from when others have begun to give members away for it: that is not
    for pods of no gang either.
    """

    gang_key: str
    nodes: frozenset[str]
    released: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def backoff_seconds(gang: Gang, now: datetime) -> float:
    """How long the gang still rests after an attempt that failed; 0 if it does not."""
    until = parse_time_or_none(gang.status.requeue_time)
    left = (until - now).total_seconds() if until is not None else 0.0
    return left if 0 < left <= MAX_BACKOFF_SECONDS else 0.0


def queue_order(gangs: Iterable[Gang]) -> list[QueuedGang]:
    """The gangs that wait, first comes first; suspended ones do not wait."""
    waiting = [QueuedGang(key_of(each), each, _since(each)) for each in gangs if not each.spec.suspend]
    waiting.sort(key=lambda each: (-each.gang.spec.priority, each.since, each.key))
    return waiting


def _since(gang: Gang) -> datetime:
    return (
        parse_time_or_none(gang.status.queued_time)
        or parse_time_or_none(gang.metadata.creation_timestamp)
        or _BEGINNING
    )
