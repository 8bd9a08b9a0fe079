"""Gangs that run and change their size: what their owners are asked for, and what becomes of it.

Theory of operation. In each pass of the loop, after all gangs have been settled and before the queue is decided on:

    plan    the rules say which wishes should stand, and which nodes are kept for a gang that waits (scheduling/scaling)
    follow  members that an owner has added are placed if they fit, those that it has taken away give their seats back;
            what it was asked for and has done is not said any more
    ask     statuses say the wishes that they do not say yet, and those that hold no more are withdrawn

Threads: the admission loop's, under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import BOUND, Gang, placed_nodes, wanted_members
from tfjob_controller.extender import lifecycle
from tfjob_controller.extender.elasticgangs import ElasticGangs, Pods
from tfjob_controller.extender.lifecycle import Standing, standing_of
from tfjob_controller.extender.podneeds import PodNeeds
from tfjob_controller.extender.relocation import resized_nodes
from tfjob_controller.extender.statuswriter import Result, Step
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.queue import Queued
from tfjob_controller.scheduling.scaling import Plan, Resize, ScalePolicy, plan_resizes
from tfjob_controller.scheduling.view import ClusterView
from tfjob_controller.util.clock import Clock

# After a question that took long and was answered with nothing, the rules are not asked for so many times as long:
# they are asked in every pass, and kube-scheduler's questions wait for that.
_REST_FACTOR = 20.0


class Resizing:
    """See the module. `wake` is told which gang to look at again, and when on the monotonic scale."""

    def __init__(
        self,
        view: ClusterView,
        gangs: Store[Gang],
        needs: PodNeeds,
        policy: ScalePolicy,
        clock: Clock,
        wake: Callable[[str, float], None],
    ) -> None:
        self._view = view
        self._gangs = gangs
        self._needs = needs
        self._policy = policy
        self._clock = clock
        self._wake = wake
        self._elastic = ElasticGangs(view)
        # Placed gangs whose members may be others than their placement has: new ones, that have had no room so far.
        self._unsettled: set[str] = set()
        # Placed gangs whose statuses say a wish, or should.
        self._asked: set[str] = set()
        self._rests_until = 0.0

    def see(self, gang: Gang, pods: Pods, all_pods: Iterable[ScheduledPod], has_succeeded: bool, now: datetime) -> None:
        """A gang that is placed, as it is now; see `ElasticGangs.see`."""
        key = key_of(gang)
        self._unsettled.add(key)
        self._elastic.see(gang, pods, all_pods, has_succeeded, now)
        if gang.status.target_members or gang.status.leaving:
            self._asked.add(key)

    def forget(self, key: str) -> None:
        """It is not placed any more, or has to be looked at first."""
        self._unsettled.discard(key)
        self._asked.discard(key)
        self._elastic.forget(key)

    def plan(self, queue: Callable[[], Sequence[Queued]], now: datetime) -> Plan:
        """What should be; `queue` is asked only where it matters."""
        running = self._elastic.running()
        begin = self._clock.monotonic()
        if not running:
            return Plan()
        if begin < self._rests_until:
            self._wake(running[0].key, self._rests_until)
            return Plan()
        ending, until = self._elastic.ending(now)
        waited_at = self._elastic.waited_at
        plan = plan_resizes(self._view, queue(), running, now, self._policy, ending=ending, waited_at=waited_at)
        end = self._clock.monotonic()
        if not plan.resizes and plan.kept is None:
            self._rests_until = end + _REST_FACTOR * (end - begin)
        for due in (plan.due, until):
            if due is not None:
                self._wake(running[0].key, end + max((due - now).total_seconds(), 0.0))
        return plan

    def steps(self, plan: Plan, taken: AbstractSet[str], now: datetime) -> list[Step]:
        """What is to be written; not of gangs that are `taken`, of which something else is to be written."""
        kept = frozenset[str]() if plan.kept is None else plan.kept.nodes
        followed = [step for key in sorted(self._unsettled - taken) for step in self._follow(key, kept, now)]
        taken = taken | {key_of(step.gang) for step in followed}
        wishes = {each.key: each for each in plan.resizes}
        asked = [step for key in sorted((self._asked | wishes.keys()) - taken) for step in self._ask(key, wishes)]
        return followed + asked

    def _follow(self, key: str, kept: AbstractSet[str], now: datetime) -> Sequence[Step]:
        """After all others have been settled, since they may have given room back."""
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND or standing_of(gang) is not Standing.PLACED:
            self._unsettled.discard(key)
            return ()
        gang = self._needs.corrected(key, gang)
        status = lifecycle.resized(gang, resized_nodes(self._view, gang, kept), now)
        if len(placed_nodes(status)) == len(wanted_members(gang)):
            self._unsettled.discard(key)
        is_same = status.placement == gang.status.placement and status.members == gang.status.members
        return () if is_same else (Step(gang, status, Result.RESIZED),)

    def _ask(self, key: str, wishes: dict[str, Resize]) -> Sequence[Step]:
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND:
            self._asked.discard(key)
            return ()
        wish = wishes.get(key)
        if wish is None:
            status, result = lifecycle.without_wish(gang.status), Result.WITHDRAWN
        elif not self._elastic.is_seen(gang):
            # Its owner has changed its count meanwhile, and would be overruled; it is looked at again in a moment.
            return ()
        else:
            status = lifecycle.asked(gang, wish.kind, wish.target, wish.leaving, wish.reason)
            result = Result.GROW if not wish.leaving else Result.SHRINK
        return () if status == gang.status else (Step(gang, status, result),)
