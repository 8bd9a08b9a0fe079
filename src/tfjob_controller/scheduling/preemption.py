"""Selects the running gangs that leave their nodes for a waiting gang of higher priority, each as a whole.

Theory of operation. A `PreemptionDecider` is asked before the queue is decided on, and keeps no state: preemptions
under way are read from the gangs. There is at most one preemptor at a time.

*Ongoing* (`ongoing_plan`): victims name the preemptor in their statuses. As long as one of them is about to leave, or
has left lately, and the preemptor waits, the nodes of its placement are nominated for it: no other gang may be placed
there, whatever its priority, so what the victims free is not lost to others.

*New* (`new_plan`): the queue is gone through in order, to the first gang that may preempt and would start:

1. a gang that may not preempt, or whose last attempt was given up, is skipped;
2. a gang that fits as soon as terminating pods are gone, or for which elastic gangs could shrink, needs no victims, and
   no gang behind it gets any: nominated nodes would be closed to the first one;
3. a gang that has not waited for `after_seconds`, or for which no victims make room for all of its minimum, is skipped;
4. candidates are bound gangs of lower priority that have run for `grace_seconds`. They are ordered: those of namespaces
   whose gangs have stayed before come last; then the lowest priority first, then the fewest members, then those that
   lose least work (`RunningGang.saved_time`). The shortest prefix is taken with which the preemptor fits, tried with
   the live placement. Then each victim without which it still fits is spared, in the reverse order.

A gang of equal priority is never a victim, so two gangs cannot preempt each other alternately.

Source: kube-scheduler's DefaultPreemption plugin, which works on pods; Kubernetes' KEP-5710 on workload-aware
preemption. Threads: as the view's. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.api.common.podrequests import add_amounts
from tfjob_controller.api.gang import UNSCHEDULABLE, Gang, kind_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes, QueuedGang
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement, place
from tfjob_controller.scheduling.podsets import PodSet, pod_sets_of, requests_by_kind
from tfjob_controller.scheduling.whatif import WhatIfView, shortest_prefix

# How long what victims have left stays nominated for their preemptor, from the request on.
NOMINATION_TIMEOUT = timedelta(seconds=300)
# How many different gangs of the queue are tried as preemptors, and how many victims of one are spared one by one: each
# is a placement.
_TRIED_PREEMPTORS = 8
_SPARED_ONE_BY_ONE = 64
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    """`topology_keys` as for placement: node labels, the widest domain first."""

    after_seconds: float = 10.0
    grace_seconds: float = 60.0
    topology_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A bound gang that may be preempted.

    `priority` is what counts for preemption. `saved_time` is when its program last saved its work, or began.
    `is_leaving`: it was asked to leave, and is not a candidate. `is_last`: gangs of its namespace could not be made to.
    """

    key: str
    priority: int
    members: int
    bound_time: datetime | None
    saved_time: datetime | None
    is_leaving: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A gang was asked at this time to leave, or has left, for the preemptor."""

    preemptor: str
    time: datetime


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """`victims` are asked to leave for `preemptor`. `recheck_time`: plan again by then, even if nothing has changed."""

    preemptor: str = ""
    victims: tuple[str, ...] = ()
    nominated: NominatedNodes | None = None
    recheck_time: datetime | None = None


class PreemptionDecider:
    """One evaluation of the rules.

    `queue` is in queue order. `running` are all bound gangs, `claims` those of all gangs. `freed` is the capacity of
    terminating pods. `priority_of` returns the priority with which a gang preempts, None for one that may not.
    `could_shrink` reports whether elastic gangs could make room for a gang.
    """

    def __init__(
        self,
        view: ClusterView,
        running: Iterable[RunningGang],
        claims: Iterable[Claim],
        now: datetime,
        policy: PreemptionPolicy,
        *,
        priority_of: Callable[[Gang], int | None],
        freed: Sequence[FreedCapacity] = (),
        could_shrink: Callable[[QueuedGang], bool] = lambda queued: False,
    ) -> None:
        self._view = view
        self._running = list(running)
        self._claims = [claim for claim in claims if abs(now - claim.time) < NOMINATION_TIMEOUT]
        self._now = now
        self._policy = policy
        self._priority_of = priority_of
        self._could_shrink = could_shrink
        leaving = [each.key for each in self._running if each.is_leaving]
        self._freed = [*freed, *(each for key in leaving for each in view.capacity_of(key))]

    def ongoing_plan(self, queue: Iterable[QueuedGang]) -> PreemptionPlan:
        """Returns the nominated nodes of the preemptor that has a claim; an empty plan without one."""
        preemptors = {each.preemptor for each in self._claims}
        waiting = (each for each in queue if each.key in preemptors and not each.is_backing_off(self._now))
        for each in waiting:
            pod_sets = _minimum(each.gang)
            placement = self._try(pod_sets, ()) if pod_sets else None
            if pod_sets and placement is not None:
                last = max(claim.time for claim in self._claims if claim.preemptor == each.key)
                nominated = _nominate(each.key, placement, pod_sets)
                return PreemptionPlan(each.key, nominated=nominated, recheck_time=last + NOMINATION_TIMEOUT)
        return PreemptionPlan()

    def new_plan(self, queue: Iterable[QueuedGang]) -> PreemptionPlan:
        """Returns the victims of the first gang that may preempt and would start; an empty plan if there is none."""
        rechecks: list[datetime] = []
        # Gangs that differ in nothing but their names fail alike.
        failed: set[tuple[int, tuple[PodSet, ...]]] = set()
        for each in queue:
            priority, pod_sets = self._priority(each), _minimum(each.gang)
            if priority is None or pod_sets is None or (priority, pod_sets) in failed:
                continue
            if len(failed) >= _TRIED_PREEMPTORS or self._try(pod_sets, ()) is not None or self._could_shrink(each):
                break
            candidates, next_time = self._candidates(priority)
            due = _later(each.since, self._policy.after_seconds)
            if due > self._now:
                rechecks += [due] if candidates or next_time else []
                continue
            found = self._select(pod_sets, candidates)
            if found is not None:
                victims, placement = found
                keys = tuple(sorted(victim.key for victim in victims))
                return PreemptionPlan(each.key, keys, _nominate(each.key, placement, pod_sets))
            failed.add((priority, pod_sets))
            rechecks += [next_time] if next_time is not None else []
        return PreemptionPlan(recheck_time=min(rechecks, default=None))

    def _priority(self, queued: QueuedGang) -> int | None:
        """Returns None for a gang that preempts nobody now."""
        status = queued.gang.status
        if status.phase == UNSCHEDULABLE or status.requeue_time or queued.is_backing_off(self._now):
            return None
        return self._priority_of(queued.gang)

    def _candidates(self, priority: int) -> tuple[list[RunningGang], datetime | None]:
        """Returns the gangs that may be preempted, in order, and when the next one may be."""
        lower = [each for each in self._running if each.priority < priority and not each.is_leaving]
        times = {each.key: _later(each.bound_time or self._now, self._policy.grace_seconds) for each in lower}
        found = [each for each in lower if times[each.key] <= self._now]
        found.sort(key=lambda each: (each.is_last, each.priority, each.members, self._lost_seconds(each), each.key))
        return found, min((times[each.key] for each in lower if times[each.key] > self._now), default=None)

    def _lost_seconds(self, gang: RunningGang) -> float:
        return max((self._now - (gang.saved_time or gang.bound_time or _BEGINNING)).total_seconds(), 0.0)

    def _select(
        self, pod_sets: Sequence[PodSet], candidates: Sequence[RunningGang]
    ) -> tuple[Sequence[RunningGang], Placement] | None:
        """Returns a minimal set of victims and the placement without them; None if all candidates are not enough."""

        def without(victims: Sequence[RunningGang]) -> Placement | None:
            return self._try(pod_sets, victims)

        if not candidates or without(candidates) is None:
            return None
        found = shortest_prefix(candidates, without)
        if found is None:
            return None
        victims, placement = found
        victims, placement = self._without_untouched(list(victims), placement, without)
        for victim in list(reversed(victims))[:_SPARED_ONE_BY_ONE]:
            others = [each for each in victims if each is not victim]
            fits = without(others)
            if fits is not None:
                victims, placement = others, fits
        return victims, placement

    def _without_untouched(
        self,
        victims: list[RunningGang],
        placement: Placement,
        without: Callable[[Sequence[RunningGang]], Placement | None],
    ) -> tuple[list[RunningGang], Placement]:
        """Spares at once all victims that have nothing on the nodes of the placement."""
        used = set(placement.node_of.values())
        others = [victim for victim in victims if any(one.node in used for one in self._view.capacity_of(victim.key))]
        fits = without(others) if len(others) < len(victims) else None
        return (victims, placement) if fits is None else (others, fits)

    def _try(self, pod_sets: Sequence[PodSet], victims: Iterable[RunningGang]) -> Placement | None:
        more = (capacity for victim in victims for capacity in self._view.capacity_of(victim.key))
        return place(WhatIfView(self._view, [*self._freed, *more]), pod_sets, self._policy.topology_keys)


def _minimum(gang: Gang) -> tuple[PodSet, ...] | None:
    """Returns the least with which the gang starts; None if its spec is invalid."""
    try:
        return tuple(pod_set.with_count(pod_set.min_count) for pod_set in pod_sets_of(gang.spec))
    except ValueError:
        return None


def _nominate(key: str, placement: Placement, pod_sets: Iterable[PodSet]) -> NominatedNodes:
    amounts = requests_by_kind(pod_sets)
    released: dict[str, dict[str, int]] = {}
    for member, node in placement.node_of.items():
        add_amounts(released.setdefault(node, {}), amounts[kind_of(member)])
    return NominatedNodes(key, frozenset(released), released)


def _later(moment: datetime, seconds: float) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        # Such times are only written by hand.
        return _END_OF_TIME
