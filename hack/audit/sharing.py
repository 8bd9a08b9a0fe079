"""The rules of shared clusters: quotas and preemption. Pure; part of `audit.core`, which describes the violations.

A preemption is *open* from the first request to a victim until the preemptor is admitted, or does not want to start any
more. While one is open, capacity is kept for the preemptor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from audit.capacity import ClusterCapacity, add_amounts, fits, reservations
from audit.objects import Gang, Pod, Preemption, Quota
from audit.records import GangRecord, reserved_capacity

_REQUESTED = "Requested"
# Times of a status have less than this precision.
_TOLERANCE_SECONDS = 1.0

# Reports a violation: its rule, what it is reported once for, its subject, a text and the time.
Report = Callable[[str, str, str, str, float], None]


@dataclass(slots=True)
class _Open:
    """An open preemption: the victims that have not left yet, and since when none is left."""

    victims: set[str] = field(default_factory=set)
    left_since: float | None = None


@dataclass(slots=True)
class Preemptions:
    """Follows the preemptions of a run. `grace_seconds` is the gang scheduler's setting; None judges none."""

    grace_seconds: float | None
    limit_seconds: float
    """How long a preemptor may take to be admitted once all of its victims have left."""
    requested: int = 0
    served: int = 0
    """Preemptors that were admitted."""
    longest_open_seconds: float = 0.0
    _open: dict[str, _Open] = field(default_factory=dict)

    @property
    def is_any_open(self) -> bool:
        return bool(self._open)

    def note_gang(self, before: Gang | None, gang: Gang, preemptor: Gang | None, now: float, report: Report) -> None:
        """Records a version of a gang; `preemptor` is the gang that its preemption names, if that exists."""
        if gang.preemption is not None and gang.preemption != (before.preemption if before is not None else None):
            self._note_victim(gang, gang.preemption, preemptor, now, report)
        if gang.key in self._open and not gang.is_waiting:
            self.served += gang.is_placed
            del self._open[gang.key]
        self._note_left(now)

    def note_deleted(self, gang: Gang, now: float) -> None:
        """Records that a gang does not exist any more."""
        self._open.pop(gang.key, None)
        for each in self._open.values():
            each.victims.discard(gang.key)
        self._note_left(now)

    def delay(self, seconds: float) -> None:
        """Extends all deadlines."""
        for each in self._open.values():
            each.left_since = None if each.left_since is None else each.left_since + seconds

    def tick(self, now: float, report: Report) -> None:
        """Reports preemptors that do not start although all victims have left."""
        for key, each in self._open.items():
            lasted = now - each.left_since if each.left_since is not None else 0.0
            self.longest_open_seconds = max(self.longest_open_seconds, lasted)
            if lasted > self.limit_seconds:
                text = f"others have left for it, and {lasted:.1f} s later it is not admitted"
                report("preempted-for-nothing", f"{key}/{each.left_since}", key, text, now)

    def _note_victim(
        self, gang: Gang, preemption: Preemption, preemptor: Gang | None, now: float, report: Report
    ) -> None:
        open_ = self._open.get(preemption.by)
        if preemption.state != _REQUESTED:
            if open_ is not None:
                open_.victims.discard(gang.key)
            return
        self.requested += 1
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
            open_.left_since = None

    def _note_left(self, now: float) -> None:
        for each in self._open.values():
            if not each.victims and each.left_since is None:
                each.left_since = now


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
    in_use: dict[str, int] = {}
    for pod in pods:
        if not pod.is_finished:
            add_amounts(in_use, pod.requests)
    reserved: dict[str, int] = {}
    for requests in reservations(placed).values():
        add_amounts(reserved, requests)
    return [
        (name, total, limit)
        for quota in quotas
        for name, limit in sorted(quota.hard.items())
        if (total := reserved.get(name, 0) + max(in_use.get(name, 0), quota.used.get(name, 0) if with_status else 0))
        > limit
    ]


def is_inverted(
    records: Collection[GangRecord], capacity: ClusterCapacity, since: float, is_over_quota: Callable[[Gang], bool]
) -> bool:
    """Reports whether each waiting gang of the highest priority would fit without gangs bound before `since`.

    Only gangs of lower priority count, and the waiting ones must not fit as it is, wait for another reason, or exceed
    a quota.
    """
    waiting = [each.gang for each in records if each.gang.is_waiting]
    highest = max((each.priority for each in waiting), default=0)
    lower = [
        each
        for each in records
        if each.gang.phase == "Bound" and each.gang.priority < highest and each.gang.bound_at < since
    ]
    if not waiting or not lower:
        return False
    free = capacity.free(reserved_capacity(records))
    gained = {name: dict(values) for name, values in free.items()}
    for record in lower:
        for pod in record.pods.values():
            if pod.uses_capacity and pod.node in gained:
                add_amounts(gained[pod.node], pod.requests)
    return all(
        not each.not_before
        and not each.is_refused
        and each.phase == "Waiting"
        and not is_over_quota(each)
        and not fits(each.needs, capacity, free)
        and fits(each.needs, capacity, gained)
        for each in waiting
        if each.priority == highest
    )
