"""The order of the queue: priority, then time in the queue, then name.

A gang is queued since `status.queuedTime`, which a failed attempt does not reset, or else since its creation. A gang
that backs off after a failed attempt (`status.requeueTime`) keeps its position but is not considered. A backoff longer
than `MAX_BACKOFF_SECONDS` was written by another clock or by hand, and is ignored.

A gang of a higher priority always comes first, so a stream of such gangs can hold back a lower one for ever. Among
gangs of equal priority none starves: whichever has waited longest gets all capacity that it could use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import key_of
from tfjob_controller.util.timestamps import parse_time_or_none

# The longest backoff after a failed attempt.
MAX_BACKOFF_SECONDS = 60.0
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang in the queue, and the time since which it is queued."""

    key: str
    gang: Gang
    since: datetime

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it backs off after a failed attempt."""
        return backoff_seconds(self.gang, now) > 0

    def waiting_seconds(self, now: datetime) -> float:
        """Returns how long it has been queued; never negative, whatever the clocks say."""
        return max((now - self.since).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class NominatedNodes:
    """Nodes that are nominated for a gang until it has started: no other gang may be placed on them.

    `released` is, by node, the capacity that other gangs have begun to release for it; pods without a gang may not use
    it either.
    """

    gang_key: str
    nodes: frozenset[str]
    released: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def backoff_seconds(gang: Gang, now: datetime) -> float:
    """Returns how long the gang still backs off after a failed attempt; 0 if it does not."""
    until = parse_time_or_none(gang.status.requeue_time)
    left = (until - now).total_seconds() if until is not None else 0.0
    return left if 0 < left <= MAX_BACKOFF_SECONDS else 0.0


def queue_order(gangs: Iterable[Gang]) -> list[QueuedGang]:
    """Returns the pending gangs in queue order; suspended gangs are not queued."""
    waiting = [QueuedGang(key_of(each), each, _since(each)) for each in gangs if not each.spec.suspend]
    waiting.sort(key=lambda each: (-each.gang.spec.priority, each.since, each.key))
    return waiting


def _since(gang: Gang) -> datetime:
    return (
        parse_time_or_none(gang.status.queued_time)
        or parse_time_or_none(gang.metadata.creation_timestamp)
        or _BEGINNING
    )
