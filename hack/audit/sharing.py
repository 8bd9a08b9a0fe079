"""The rules of shared clusters: quotas and preemption. Pure; part of `audit.core`, which describes the violations.

A preemption is *open* from the first request to a victim until the preemptor is admitted, or does not want to start any
more. While one is open, capacity is kept for the preemptor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from audit.capacity import ClusterCapacity, fits, reservations
from audit.objects import Gang, Pod, Preemption, Quota
from audit.quantity import add_amounts, total
from audit.records import GangRecord, Timer, reserved_capacity

_REQUESTED = "Requested"
# Times of a status have less than this precision.
_TOLERANCE_SECONDS = 1.0

# Reports a violation: its rule, what it is reported once for, its subject, a text and the time.
Report = Callable[[str, str, str, str, float], None]


@dataclass(slots=True)
class _Open:
    """An open preemption: the victims that have not left yet, and since when none is left."""

    victims: set[str] = field(default_factory=set)
    left: Timer = field(default_factory=Timer)


@dataclass(slots=True)
class Preemptions:
    """Follows the preemptions of a run. `grace_seconds` is the gang scheduler's setting; None judges none."""

    grace_seconds: float | None
    limit_seconds: float
    """How long a preemptor may take to be admitted once all of its victims have left."""
    _open: dict[str, _Open] = field(default_factory=dict)

    @property
    def is_any_open(self) -> bool:
        return bool(self._open)

    @property
    def timers(self) -> Iterator[Timer]:
        return (preemption.left for preemption in self._open.values())

    def note_gang(self, before: Gang | None, gang: Gang, preemptor: Gang | None, now: float, report: Report) -> None:
        """Records a version of a gang; `preemptor` is the gang that its preemption names, if that exists."""
        if gang.preemption is not None and gang.preemption != (before.preemption if before is not None else None):
            self._note_victim(gang, gang.preemption, preemptor, now, report)
        if not gang.is_waiting:
            self._open.pop(gang.key, None)
        self._note_left(now)

    def note_deleted(self, gang: Gang, now: float) -> None:
        """Records that a gang does not exist any more."""
        self._open.pop(gang.key, None)
        for preemption in self._open.values():
            preemption.victims.discard(gang.key)
        self._note_left(now)

    def tick(self, now: float, report: Report) -> None:
        """Reports preemptors that do not start although all victims have left."""
        for key, preemption in self._open.items():
            if (lasted := preemption.left.lasted(now)) > self.limit_seconds:
                text = f"others have left for it, and {lasted:.1f} s later it is not admitted"
                report("preempted-for-nothing", f"{key}/{preemption.left.since}", key, text, now)

    def _note_victim(
        self, gang: Gang, preemption: Preemption, preemptor: Gang | None, now: float, report: Report
    ) -> None:
        open_ = self._open.get(preemption.by)
        if preemption.state != _REQUESTED:
            if open_ is not None:
                open_.victims.discard(gang.key)
            return
        once = f"{gang.uid}/{preemption.at}"
        if preemptor is not None and preemptor.priority <= gang.priority:
            text = f"priority {gang.priority}, by {preemptor.key} of priority {preemptor.priority}"
            report("preempted-by-lower", once, gang.key, text, now)
        if self.grace_seconds is not None and preemption.at - gang.bound_at < self.grace_seconds - _TOLERANCE_SECONDS:
            text = f"{preemption.at - gang.bound_at:.1f} s after it was bound"
            report("preempted-too-early", once, gang.key, text, now)
        # A preemptor that was admitted, or deleted, between the decision and its write needs nothing any more.
        if preemptor is not None and preemptor.is_waiting:
            open_ = self._open.setdefault(preemption.by, _Open())
            open_.victims.add(gang.key)
            open_.left = Timer()

    def _note_left(self, now: float) -> None:
        for preemption in self._open.values():
            preemption.left.update(now, holds=not preemption.victims)


def over_quota(
    quotas: Iterable[Quota],
    pods: Iterable[Pod],
    placed: Iterable[tuple[Gang, Collection[str]]],
    *,
    with_status: bool = False,
) -> list[tuple[str, int, int]]:
    """Returns the resources of which a namespace uses or has reserved more than a quota allows: name, sum, and limit.

    `pods` are those of the namespace. Each placed gang comes with its members that have a pod, or need none any more.
    With `with_status`, the pods count as at least what the quota's status says.
    """
    in_use = total(*(pod.requests for pod in pods if not pod.is_finished))
    reserved = total(*reservations(placed).values())
    exceeded = []
    for quota in quotas:
        for name, limit in sorted(quota.hard.items()):
            used = max(in_use.get(name, 0), quota.used.get(name, 0) if with_status else 0)
            if reserved.get(name, 0) + used > limit:
                exceeded.append((name, reserved.get(name, 0) + used, limit))
    return exceeded


def is_inverted(
    records: Collection[GangRecord], capacity: ClusterCapacity, since: float, is_over_quota: Callable[[Gang], bool]
) -> bool:
    """Reports whether each waiting gang of the highest priority would fit without gangs bound before `since`.

    Only gangs of lower priority count, and the waiting ones must not fit as it is, wait for another reason, or exceed
    a quota.
    """
    waiting = [record.gang for record in records if record.gang.is_waiting]
    highest = max((gang.priority for gang in waiting), default=0)
    bound = [record for record in records if record.gang.phase == "Bound" and record.gang.bound_at < since]
    lower = [record for record in bound if record.gang.priority < highest]
    if not waiting or not lower:
        return False
    free = capacity.free(reserved_capacity(records))
    gained = {name: dict(values) for name, values in free.items()}
    for record in lower:
        for pod in record.pods.values():
            if pod.uses_capacity and pod.node in gained:
                add_amounts(gained[pod.node], pod.requests)
    return all(
        not gang.not_before
        and not gang.is_refused
        and gang.phase == "Waiting"
        and not is_over_quota(gang)
        and not fits(gang.needs, capacity, free)
        and fits(gang.needs, capacity, gained)
        for gang in waiting
        if gang.priority == highest
    )
