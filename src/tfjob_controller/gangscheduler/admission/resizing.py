"""Resize requests to elastic gangs: which are made, which are withdrawn, and how placements follow resized specs.

Theory of operation. In each pass of the loop, after the gangs' statuses follow their pods and before the queue is
decided:

    plan    the scaling rules (scheduling/scaling) say which resize requests should exist, and which nodes are kept for
            a waiting gang
    follow  members that an owner added are placed if they fit, and the assignments of removed members are released;
            a request that was fulfilled is cleared
    request statuses record new requests, and requests that no longer hold are withdrawn

`ElasticGangs` caches the rules' input. It is updated when a gang or one of its pods changes (`update`), so a pass does
not visit all gangs and pods. All of it can be read again after a restart.

Capacity that ends soon counts as free for the rules: that of pods which are being deleted, and of members that were
removed and whose owner is about to delete their pods. A pod that remains long after its deadline no longer counts.

Threads: the admission loop's, under the view's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import BOUND, MEMBER_LABEL, Gang, kind_of, placed_nodes, wanted_members
from tfjob_controller.gangscheduler.admission.reservations import reserve_resized
from tfjob_controller.gangscheduler.state.observedrequests import ObservedRequests
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import GangState, state_of
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.autoscaler import plan_resizes
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
    elastic_gang_of,
    elastic_kind,
)
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.queue import QueuedGang
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import parse_time_or_none

# How long a pod may take to go once its grace period is over, or an owner to delete it.
RELEASE_TIMEOUT_SECONDS = 60.0
# Who was admitted sooner has not waited: somebody has to see the Gang, and to write its status.
_AT_ONCE_SECONDS = 5.0

Pods = Mapping[str, ScheduledPod]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A gang. `unseated`: room of members that it asks for no more, and `left_behind`: of pods that have no seat."""

    elastic: ElasticGang
    unseated: tuple[FreedCapacity, ...]
    left_behind: tuple[FreedCapacity, ...]


class ElasticGangs:
    """See the module. `waited_at` is when a gang was admitted last that had had to wait."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._seen: dict[str, _Seen] = {}
        self.waited_at: datetime | None = None

    def see(self, gang: Gang, pods: Pods, all_pods: Iterable[ScheduledPod], has_succeeded: bool, now: datetime) -> None:
        """A gang that is placed. `pods` are those of its attempt, by member; whether some member `has_succeeded`."""
        self._note_wait(gang, now)
        key = key_of(gang)
        self._seen.pop(key, None)
        if gang.status.phase != BOUND or elastic_kind(gang.spec) is None:
            return
        left_behind = _left_behind(gang, all_pods)
        is_finishing = has_succeeded or any(map(lifecycle.has_succeeded, pods.values()))
        is_changing = bool(left_behind) or not all(_is_settled(pods.get(each)) for each in placed_nodes(gang.status))
        elastic = elastic_gang_of(gang, is_finishing=is_finishing, is_changing=is_changing)
        if elastic is not None:
            gone = elastic.nodes.keys() - set(wanted_members(gang))
            # Those that were told to end the view knows.
            staying = [pod for pod in left_behind if pod.metadata.deletion_timestamp is None]
            self._seen[key] = _Seen(
                elastic,
                tuple(_room(member, elastic.nodes[member], elastic) for member in sorted(gone)),
                tuple(_room(pod.metadata.labels.get(MEMBER_LABEL, ""), pod.spec.node_name, elastic) for pod in staying),
            )

    def forget(self, key: str) -> None:
        """It is not bound any more."""
        self._seen.pop(key, None)

    def running(self) -> Sequence[ElasticGang]:
        """All of them, also those that may not be resized now."""
        return [each.elastic for each in self._seen.values()]

    def is_seen(self, gang: Gang) -> bool:
        """Whether it still asks for what it did when it was seen: the cache goes on while the rules think."""
        seen, member = self._seen.get(key_of(gang)), elastic_kind(gang.spec)
        return seen is not None and member is not None and member.count == seen.elastic.count

    def ending(self, now: datetime) -> tuple[Sequence[FreedCapacity], datetime | None]:
        """Room that will come free by itself, and when some of that will be counted on no more."""
        counted = [
            (_end(parse_time_or_none(until), now), FreedCapacity(node, amounts))
            for node, amounts, until in self._view.terminating_pods()
        ]
        for each in self._seen.values():
            end = _end(each.elastic.last_resize_time, now)
            counted += [(end, ending) for ending in each.left_behind]
            # Their seats go in this pass; what becomes of their pods is seen then.
            counted += [(now + timedelta(seconds=RELEASE_TIMEOUT_SECONDS), ending) for ending in each.unseated]
        left = [(end, ending) for end, ending in counted if end > now]
        return [ending for _, ending in left], min((end for end, _ in left), default=None)

    def _note_wait(self, gang: Gang, now: datetime) -> None:
        admitted, since = parse_time_or_none(gang.status.admitted_time), parse_time_or_none(gang.status.queued_time)
        if admitted is None or since is None or admitted > now:
            return
        if (admitted - since).total_seconds() >= _AT_ONCE_SECONDS:
            self.waited_at = admitted if self.waited_at is None else max(admitted, self.waited_at)


def _end(moment: datetime | None, now: datetime) -> datetime:
    """Until when room is counted on that was to come free at that moment."""
    if moment is None:
        return now
    try:
        return moment + timedelta(seconds=RELEASE_TIMEOUT_SECONDS)
    except OverflowError:
        # Only a hand writes such times.
        return now


def _left_behind(gang: Gang, pods: Iterable[ScheduledPod]) -> list[ScheduledPod]:
    """Pods of members that it has no more."""
    placed = placed_nodes(gang.status)
    return [
        pod
        for pod in pods
        if lifecycle.is_unfinished(pod)
        and lifecycle.is_bound(pod)
        and pod.metadata.labels.get(MEMBER_LABEL) not in placed
    ]


def _room(member: str, node: str, elastic: ElasticGang) -> FreedCapacity:
    """Only of the kind that is resized; with what its pods have been seen to request (`PodNeeds`)."""
    return FreedCapacity(node, dict(elastic.pod_set.requests) if kind_of(member) == elastic.kind else {})


def _is_settled(pod: ScheduledPod | None) -> bool:
    """A member's pod is where it is to be, and stays."""
    return pod is not None and lifecycle.is_bound(pod) and pod.metadata.deletion_timestamp is None


# After a question that took long and was answered with nothing, the rules are not asked for so many times as long:
# they are asked in every pass, and kube-scheduler's questions wait for that.
_REST_FACTOR = 20.0


class ResizeRequests:
    """See the module. `wake` is told which gang to look at again, and when on the monotonic scale."""

    def __init__(
        self,
        view: ClusterView,
        gangs: Store[Gang],
        needs: ObservedRequests,
        policy: AutoscalingPolicy,
        clock: Clock,
        wake: Callable[[str, float], None],
    ) -> None:
        self._view = view
        self._gangs = gangs
        self._observed_requests = needs
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

    def plan(self, queue: Callable[[], Sequence[QueuedGang]], now: datetime) -> ResizePlan:
        """What should be; `queue` is asked only where it matters."""
        running = self._elastic.running()
        begin = self._clock.monotonic()
        if not running:
            return ResizePlan()
        if begin < self._rests_until:
            self._wake(running[0].key, self._rests_until)
            return ResizePlan()
        ending, until = self._elastic.ending(now)
        waited_at = self._elastic.waited_at
        plan = plan_resizes(self._view, queue(), running, now, self._policy, freed=ending, waited_at=waited_at)
        end = self._clock.monotonic()
        if not plan.resizes and plan.nominated is None:
            self._rests_until = end + _REST_FACTOR * (end - begin)
        for due in (plan.recheck_time, until):
            if due is not None:
                self._wake(running[0].key, end + max((due - now).total_seconds(), 0.0))
        return plan

    def updates(self, plan: ResizePlan, taken: AbstractSet[str], now: datetime) -> list[StatusUpdate]:
        """What is to be written; not of gangs that are `taken`, of which something else is to be written."""
        kept = frozenset[str]() if plan.nominated is None else plan.nominated.nodes
        followed = [update for key in sorted(self._unsettled - taken) for update in self._follow(key, kept, now)]
        taken = taken | {key_of(update.gang) for update in followed}
        wishes = {each.key: each for each in plan.resizes}
        asked = [update for key in sorted((self._asked | wishes.keys()) - taken) for update in self._ask(key, wishes)]
        return followed + asked

    def _follow(self, key: str, kept: AbstractSet[str], now: datetime) -> Sequence[StatusUpdate]:
        """After all others have been settled, since they may have given room back."""
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND or state_of(gang) is not GangState.PLACED:
            self._unsettled.discard(key)
            return ()
        gang = self._observed_requests.apply(key, gang)
        status = lifecycle.resized_status(gang, reserve_resized(self._view, gang, kept), now)
        if len(placed_nodes(status)) == len(wanted_members(gang)):
            self._unsettled.discard(key)
        is_same = status.placement == gang.status.placement and status.members == gang.status.members
        return () if is_same else (StatusUpdate(gang, status, StatusChange.RESIZED),)

    def _ask(self, key: str, wishes: dict[str, ResizeRequest]) -> Sequence[StatusUpdate]:
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND:
            self._asked.discard(key)
            return ()
        wish = wishes.get(key)
        if wish is None:
            status, change = lifecycle.without_resize_request(gang.status), StatusChange.REQUEST_WITHDRAWN
        elif not self._elastic.is_seen(gang):
            # Its owner has changed its count meanwhile, and would be overruled; it is looked at again in a moment.
            return ()
        else:
            status = lifecycle.resize_request_status(gang, wish.kind, wish.target, wish.leaving, wish.reason)
            change = StatusChange.GROW_REQUESTED if not wish.leaving else StatusChange.SHRINK_REQUESTED
        return () if status == gang.status else (StatusUpdate(gang, status, change),)
