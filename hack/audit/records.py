"""What the auditor knows of a gang. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from audit.capacity import reservations
from audit.objects import Gang, Pod
from audit.quantity import Amounts
from audit.races import Round


@dataclass(slots=True)
class Timer:
    """How long a condition has held, without the time that counts for no deadline."""

    since: float | None = None

    def update(self, now: float, *, holds: bool) -> None:
        if not holds:
            self.since = None
        elif self.since is None:
            self.since = now

    def delay(self, seconds: float) -> None:
        self.since = None if self.since is None else self.since + seconds

    def lasted(self, now: float) -> float:
        return 0.0 if self.since is None else now - self.since


@dataclass(slots=True)
class GangRecord:
    """The state of a gang that its last version does not contain: its pods, and what has held since when."""

    gang: Gang
    idle: Timer
    pods: dict[str, Pod] = field(default_factory=dict)
    # (attempt, member) of the members that have succeeded, including those whose pods are deleted.
    succeeded: set[tuple[str, str]] = field(default_factory=set)
    partly: Timer = field(default_factory=Timer)
    fits: Timer = field(default_factory=Timer)
    round: Round = field(default_factory=Round)

    @property
    def timers(self) -> tuple[Timer, ...]:
        return self.idle, self.partly, self.fits

    @property
    def served(self) -> set[str]:
        """Members of the current attempt that are bound or have finished."""
        return self._members(lambda pod: bool(pod.node) or pod.is_finished)

    @property
    def covered(self) -> set[str]:
        """Members that need no reservation: their pod runs on its assigned node or has succeeded."""
        placement = self.gang.placement
        return self._members(lambda pod: pod.uses_capacity and pod.node == placement.get(pod.member))

    @property
    def with_pods(self) -> set[str]:
        """Members that have a pod, or have succeeded: a quota counts the pod, or nothing any more."""
        return self._members(lambda pod: pod.phase != "Failed")

    @property
    def is_partly_bound(self) -> bool:
        """Reports whether pods use capacity while others of the placement have none, or without a placement."""
        gang = self.gang
        if (gang.phase == "Released" and gang.placement) or not any(pod.uses_capacity for pod in self.pods.values()):
            return False
        return not gang.is_placed or bool(gang.placement.keys() - self.served)

    def _members(self, condition: Callable[[Pod], bool]) -> set[str]:
        """Returns the members of the current attempt whose pod meets a condition, or that have succeeded."""
        attempt = self.gang.attempt
        succeeded = {member for number, member in self.succeeded if number == attempt}
        return succeeded | {pod.member for pod in self.pods.values() if pod.attempt == attempt and condition(pod)}


def reserved_capacity(records: Iterable[GangRecord]) -> dict[str, Amounts]:
    """Returns what is reserved for members of placed gangs, by node."""
    return reservations((record.gang, record.covered) for record in records if record.gang.is_placed)


def rank(gang: Gang) -> tuple[int, float, str]:
    """Returns the sort key of a gang in the queue; the smallest comes first."""
    return -gang.priority, gang.since, gang.key
