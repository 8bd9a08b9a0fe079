"""Preemption in the admission loop: which bound gangs are asked to leave for which waiting one.

Theory of operation. The rules are scheduling/preemption.py's. Here is what they read, kept current as gangs are
processed (`update`), and what they cause:

    plan     while a gang preempts, its nodes are nominated for it and no gang is resized; otherwise resizes are planned
             (resizing.py), and only if they help nobody, whole gangs are asked to leave
    updates  the statuses that ask them

A request follows from `status.preemption` of a bound gang, and what has been freed for whom from that of a waiting one.
A restarted gang scheduler continues with both. While one process runs, it also remembers them of gangs that are
deleted, so that nobody gets what they had by making them again. A preemption that has begun is
completed even if preemption is turned off meanwhile; the lifecycle (status/preempted.py) does not depend on it.

Priorities. Whoever may write Gangs can write any `spec.priority`. For preemption it counts only up to the value of the
PriorityClass of the gang's pods, which an administrator defines and a ResourceQuota can restrict: no gang preempts, or
is safe from it, by a number alone. Pods without a class have the cluster's default one, or 0. A Gang can name any class
too, so a class counts once a pod of the namespace was admitted with it (state/admittedclasses.py).

A namespace whose gangs have preempted others and did not start waits before its next preemption (conduct.py).

Threads: the admission loop's, under the view's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.common.cluster import PriorityClass
from tfjob_controller.api.gang import BOUND, NOT_FOLLOWED, PREEMPTED, WAITING, Gang, must_leave, placed_nodes
from tfjob_controller.gangscheduler.admission.conduct import Preemptors, Stayers
from tfjob_controller.gangscheduler.admission.resizing import ResizeRequests
from tfjob_controller.gangscheduler.state.admittedclasses import AdmittedClasses
from tfjob_controller.gangscheduler.status import lifecycle, preempted
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.elasticgang import ResizePlan
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes, QueuedGang
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.podsets import last_saved_time
from tfjob_controller.scheduling.preemption import (
    NOMINATION_TIMEOUT,
    Claim,
    PreemptionDecider,
    PreemptionPlan,
    PreemptionPolicy,
    RunningGang,
)
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time, parse_time_or_none

NEVER = "Never"
# Why a gang does not preempt others.
NOT_ADMITTED = "preempts no gang before a pod of its namespace was admitted with the PriorityClass {name}"
NOT_STARTED = (
    "preempts no gang before {time}: gangs were preempted for gangs of its namespace that did not start ({number})"
)
# For how long what an ended gang had counts as about to be free: its owner deletes the pods, or the garbage collector.
ENDING_SECONDS = 5.0
# After an evaluation without a result the rules pause for a multiple of its duration: they run in every pass, and
# kube-scheduler's filter calls wait for the lock meanwhile.
_PAUSE_FACTOR = 20.0


class GangPriorities:
    """The priorities that count for preemption, with these PriorityClasses, as far as pods were admitted with them."""

    def __init__(self, classes: Iterable[PriorityClass], admitted: AdmittedClasses) -> None:
        self._classes = {priority_class.metadata.name: priority_class for priority_class in classes}
        self._default = next(
            (priority_class for priority_class in self._classes.values() if priority_class.global_default),
            PriorityClass(),
        )
        self._admitted = admitted

    def of(self, gang: Gang) -> int:
        """Returns the priority of a gang that runs: that of its spec, at most the lowest one of its pods.

        A class that is not admitted protects no more than the default one.
        """
        priority = min([gang.spec.priority, *(priority_class.value for priority_class in self._of_pods(gang))])
        return min(priority, self._default.value) if self.not_admitted(gang) else priority

    def of_preemptor(self, gang: Gang) -> int | None:
        """Returns the priority with which a gang preempts, once its classes are admitted; None if one has `Never`."""
        classes = self._of_pods(gang)
        is_patient = any(priority_class.preemption_policy == NEVER for priority_class in classes)
        return None if is_patient else min([gang.spec.priority, *(priority_class.value for priority_class in classes)])

    def not_admitted(self, gang: Gang) -> str:
        """Returns a class of the gang's pods that no pod of its namespace was admitted with; empty if there is none."""
        names = sorted(_class_names(gang) & self._classes.keys())
        return next((name for name in names if not self._admitted.has(gang.metadata.namespace, name)), "")

    def _of_pods(self, gang: Gang) -> list[PriorityClass]:
        return [self._classes.get(name, PriorityClass()) if name else self._default for name in _class_names(gang)]


def _class_names(gang: Gang) -> set[str]:
    return {member.priority_class_name for member in gang.spec.members if member.count > 0}


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """What one pass does before it decides on the queue."""

    resize: ResizePlan
    preemption: PreemptionPlan
    """Empty while no gang preempts."""

    @property
    def nominated(self) -> NominatedNodes | None:
        """The nodes that are kept for one waiting gang."""
        return self.preemption.nominated or self.resize.nominated


class PreemptionRequests:
    """Plans preemptions. `policy` is None if they are off, and `classes` returns the cluster's PriorityClasses.

    `wake(key, moment)` schedules a gang, in monotonic seconds.
    """

    def __init__(
        self,
        view: ClusterView,
        gangs: Store[Gang],
        resizing: ResizeRequests,
        policy: PreemptionPolicy | None,
        classes: Callable[[], Iterable[PriorityClass]],
        admitted: AdmittedClasses,
        clock: Clock,
        wake: Callable[[str, float], None],
    ) -> None:
        self._view = view
        self._gangs = gangs
        self._resizing = resizing
        self._policy = policy
        self._classes = classes
        self._admitted = admitted
        self._preemptors, self._stayers = Preemptors(clock), Stayers(clock)
        # Why gangs that could preempt others do not, since the last new plan.
        self._refusals: dict[str, str] = {}
        self._clock = clock
        self._wake = wake
        # The bound gangs that are candidates or about to leave, and for whom gangs leave or have left.
        self._running: dict[str, Gang] = {}
        self._claims: dict[str, Claim] = {}  # by uid, those of deleted gangs included
        # Gangs that were bound and have ended, and until when, in monotonic seconds, their capacity counts.
        self._ended: dict[str, tuple[Gang, float]] = {}
        self._paused_until = 0.0

    def update(self, gang: Gang, now: datetime) -> None:
        """Take over a gang that is placed or waits."""
        key, status = key_of(gang), gang.status
        for seconds in preempted.leaving_timeouts(gang, now):
            self._wake(key, self._clock.monotonic() + seconds)
        if self._policy is None or not lifecycle.is_wanted(gang):
            return
        preemption = status.preemption
        time = parse_time_or_none(preemption.time) if preemption is not None else None
        if preemption is not None and time is not None and (must_leave(gang) or _has_left(gang)):
            self._claims[gang.metadata.uid] = Claim(preemption.by, time)
        if status.phase == BOUND and (preemption is None or preemption.state != NOT_FOLLOWED):
            self._running[key] = gang
        if status.phase == BOUND or _has_left(gang):
            self._ended.pop(key, None)

    def forget(self, key: str) -> None:
        """Forget a gang that has ended, or that is about to be processed."""
        gang = self._running.pop(key, None)
        if gang is not None:
            self._ended[key] = gang, self._clock.monotonic() + ENDING_SECONDS

    def plan(self, queue: Callable[[], Sequence[QueuedGang]], now: datetime) -> CyclePlan:
        """Returns the plan of this pass; `queue` is called only if it is needed."""
        if self._policy is None:
            return CyclePlan(self._resizing.plan(queue, now), PreemptionPlan())
        self._claims = {uid: claim for uid, claim in self._claims.items() if abs(now - claim.time) < NOMINATION_TIMEOUT}
        plan = self._decider(now).ongoing_plan(queue()) if self._claims else PreemptionPlan()
        if plan.nominated is not None:
            self._wake_at(plan, now)
            return CyclePlan(ResizePlan(), plan)
        resize = self._resizing.plan(queue, now)
        is_released = resize.nominated is not None and not resize.resizes
        # Requests to shrink may not be followed; capacity that was released for a gang is not taken from it.
        plan = self._new_plan(queue(), now) if self._running and not is_released else PreemptionPlan()
        return CyclePlan(ResizePlan() if plan.victims else resize, plan)

    def _new_plan(self, queue: Sequence[QueuedGang], now: datetime) -> PreemptionPlan:
        begin = self._clock.monotonic()
        if not queue:
            return PreemptionPlan()
        if begin < self._paused_until:
            self._wake(queue[0].key, self._paused_until)
            return PreemptionPlan()
        self._refusals.clear()
        plan = self._decider(now, self._ending()).new_plan(queue)
        if plan.victims:
            self._preemptors.note_begun(next(queued.gang for queued in queue if queued.key == plan.preemptor))
            return plan
        end = self._clock.monotonic()
        self._paused_until = end + _PAUSE_FACTOR * (end - begin)
        self._wake_at(plan, now)
        return plan

    def _ending(self) -> list[FreedCapacity]:
        """Returns what gangs have that have just ended: no gang is preempted for capacity that is about to be freed."""
        now = self._clock.monotonic()
        self._ended = {key: (gang, until) for key, (gang, until) in self._ended.items() if until > now}
        ending: list[FreedCapacity] = []
        for key, (gang, until) in self._ended.items():
            capacity = self._view.ending_capacity_of(key, placed_nodes(gang.status))
            if capacity:
                self._wake(key, until)
            ending += capacity
        return ending

    def _decider(self, now: datetime, ending: Sequence[FreedCapacity] = ()) -> PreemptionDecider:
        freed = [*self._resizing.ending(now), *ending]
        priorities = GangPriorities(self._classes(), self._admitted)
        running = [self._running_gang(key, gang, priorities) for key, gang in self._running.items()]
        lowest = min((gang.priority for gang in running), default=None)

        def priority_of(gang: Gang) -> int | None:
            priority = priorities.of_preemptor(gang)
            if priority is None or lowest is None or priority <= lowest:
                return priority
            return None if self._is_refused(gang, priorities, now) else priority

        return PreemptionDecider(
            self._view,
            running,
            self._claims.values(),
            now,
            self._policy or PreemptionPolicy(),
            priority_of=priority_of,
            freed=freed,
            could_shrink=lambda queued: self._resizing.could_shrink_for(queued, freed, now),
        )

    def _is_refused(self, gang: Gang, priorities: GangPriorities, now: datetime) -> bool:
        """Reports whether a gang that may preempt others by its priority must not, and keeps the reason."""
        key, name = key_of(gang), priorities.not_admitted(gang)
        if name:
            self._refusals[key] = NOT_ADMITTED.format(name=name)
            return True
        blocked = self._preemptors.blocked(gang)
        if blocked is None:
            return False
        failures, until = blocked
        self._wake(key, until)
        time = format_time(now + timedelta(seconds=until - self._clock.monotonic()))
        self._refusals[key] = NOT_STARTED.format(time=time, number=failures)
        return True

    def _running_gang(self, key: str, gang: Gang, priorities: GangPriorities) -> RunningGang:
        return RunningGang(
            key,
            priorities.of(gang),
            len(placed_nodes(gang.status)),
            parse_time_or_none(gang.status.bound_time),
            last_saved_time(gang),
            must_leave(gang),
            self._stayers.has(gang.metadata.namespace),
        )

    def note_stayed(self, gang: Gang) -> None:
        """Record that the pods of a gang that was to leave could not be deleted in time."""
        self._stayers.add(gang.metadata.namespace)

    def note_bound(self, gang: Gang) -> None:
        """Record that all pods of a gang are bound."""
        self._preemptors.note_bound(gang)

    def note_of(self, key: str) -> str:
        """Returns why a gang that could preempt others does not; empty if it may, or needs not."""
        return self._refusals.get(key, "")

    def _wake_at(self, plan: PreemptionPlan, now: datetime) -> None:
        key = next(iter(self._running), plan.preemptor)
        if plan.recheck_time is not None and key:
            self._wake(key, self._clock.monotonic() + max((plan.recheck_time - now).total_seconds(), 0.0))

    def updates(self, plan: CyclePlan, updated: AbstractSet[str], now: datetime) -> list[StatusUpdate]:
        """Returns the status updates of both, for all gangs but those in `updated`, which have one in this pass."""
        requested = [
            StatusUpdate(
                gang,
                preempted.preemption_requested_status(gang, plan.preemption.preemptor, now),
                StatusChange.PREEMPTION_REQUESTED,
            )
            for key in plan.preemption.victims
            if key not in updated and (gang := self._gangs.get(key)) is not None and gang.status.phase == BOUND
        ]
        busy = updated | {key_of(update.gang) for update in requested}
        return requested + self._resizing.updates(plan.resize, plan.nominated, busy, now)


def _has_left(gang: Gang) -> bool:
    preemption = gang.status.preemption
    return gang.status.phase == WAITING and preemption is not None and preemption.state == PREEMPTED
