"""Resize requests to elastic gangs: which are made, which are withdrawn, and how placements follow resized specs.

Theory of operation. In each pass of the loop, after the gangs' statuses follow their pods and before the queue is
decided:

    plan    the autoscaling rules (scheduling/autoscaling) determine which resize requests should exist, and which nodes
            are nominated for a waiting gang
    follow  members that an owner added are placed if they fit, and the assignments of removed members are released;
            a request that was fulfilled is cleared
    request statuses record new requests, and requests that no longer hold are withdrawn

The rules' input is cached. It is updated when a gang or one of its pods changes (`update`), so a pass does not visit
all gangs and pods. All of it can be read again after a restart.

Capacity that ends soon counts as free for the rules: that of pods which are being deleted, and of members that were
removed and whose owner is about to delete their pods. A pod that remains long after its deadline no longer counts.

Threads: the admission loop's, under the view's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import BOUND, Gang, kind_of, member_of, placed_nodes, wanted_members
from tfjob_controller.gangscheduler.admission.reservations import reserve_resized
from tfjob_controller.gangscheduler.state.observedrequests import ObservedRequests
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import GangState, state_of
from tfjob_controller.gangscheduler.status.writer import StatusChange, StatusUpdate
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.autoscaler import could_shrink_for, plan_resizes
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
    elastic_gang_of,
    elastic_kind,
)
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes, QueuedGang
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.quota import NamespaceQuotas
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import parse_time_or_none

# How long a pod may exist after its grace period, and how long an owner may take to delete it.
RELEASE_TIMEOUT_SECONDS = 60.0
# A gang that is admitted sooner has not waited for capacity: processing and writing take some time.
_MIN_WAIT_SECONDS = 5.0

# After an evaluation without any request, the rules pause for a multiple of its duration: they run in every pass, and
# kube-scheduler's filter calls wait for the lock meanwhile.
_PAUSE_FACTOR = 20.0

Pods = Mapping[str, ScheduledPod]


@dataclass(frozen=True, slots=True)
class _ElasticState:
    """A gang, and the capacity that its removed members and stale pods (of members without assignment) will free."""

    elastic: ElasticGang
    removed_members: tuple[FreedCapacity, ...]
    stale_pods: tuple[FreedCapacity, ...]


class ResizeRequests:
    """Plans resize requests and follows resized specs. `wake(key, moment)` schedules a gang, in monotonic seconds."""

    def __init__(
        self,
        view: ClusterView,
        gangs: Store[Gang],
        quotas: NamespaceQuotas,
        observed_requests: ObservedRequests,
        policy: AutoscalingPolicy,
        clock: Clock,
        wake: Callable[[str, float], None],
    ) -> None:
        self._view = view
        self._gangs = gangs
        self._quotas = quotas
        self._observed_requests = observed_requests
        self._policy = policy
        self._clock = clock
        self._wake = wake
        # The rules' input, and the last admission of a gang that had waited for capacity.
        self._states: dict[str, _ElasticState] = {}
        self._last_wait_time: datetime | None = None
        # Placed gangs whose placement may lack members, because no node has had capacity for them.
        self._incomplete: set[str] = set()
        # Placed gangs whose statuses contain a request.
        self._requested: set[str] = set()
        self._paused_until = 0.0

    def update(
        self, gang: Gang, pods: Pods, all_pods: Iterable[ScheduledPod], has_succeeded: bool, now: datetime
    ) -> None:
        """Take over a placed gang. `pods` are its attempt's, by member; `has_succeeded` if some member succeeded."""
        key = key_of(gang)
        self._incomplete.add(key)
        if gang.status.target_members or gang.status.leaving:
            self._requested.add(key)
        self._note_wait(gang, now)
        self._states.pop(key, None)
        if gang.status.phase != BOUND or elastic_kind(gang.spec) is None:
            return
        stale_pods = _stale_pods(gang, all_pods)
        is_finishing = has_succeeded or any(map(lifecycle.has_succeeded, pods.values()))
        is_changing = bool(stale_pods) or not all(_is_settled(pods.get(node)) for node in placed_nodes(gang.status))
        elastic = elastic_gang_of(gang, is_finishing=is_finishing, is_changing=is_changing)
        if elastic is not None:
            gone = elastic.nodes.keys() - set(wanted_members(gang))
            # The view already counts pods that are being deleted.
            staying = [pod for pod in stale_pods if pod.metadata.deletion_timestamp is None]
            self._states[key] = _ElasticState(
                elastic,
                tuple(_freed_capacity(member, elastic.nodes[member], elastic) for member in sorted(gone)),
                tuple(_freed_capacity(member_of(pod.metadata), pod.spec.node_name, elastic) for pod in staying),
            )

    def forget(self, key: str) -> None:
        """Forget a gang that is not placed any more, or that is about to be processed."""
        self._incomplete.discard(key)
        self._requested.discard(key)
        self._states.pop(key, None)

    def plan(self, queue: Callable[[], Sequence[QueuedGang]], now: datetime) -> ResizePlan:
        """Returns the requests that should exist now; `queue` is called only if some gang can be resized."""
        running = [state.elastic for state in self._states.values()]
        begin = self._clock.monotonic()
        if not running:
            return ResizePlan()
        (freed, until), waited_at = self._ending(now), self._last_wait_time
        # Not while capacity is being freed: in a pass without nominated nodes another gang might take it.
        if begin < self._paused_until and not freed:
            self._wake(running[0].key, self._paused_until)
            return ResizePlan()
        plan = plan_resizes(self._view, queue(), running, now, self._policy, freed=freed, waited_at=waited_at)
        end = self._clock.monotonic()
        if not plan.resizes and plan.nominated is None:
            self._paused_until = end + _PAUSE_FACTOR * (end - begin)
        for due in (plan.recheck_time, until):
            if due is not None:
                self._wake(running[0].key, end + max((due - now).total_seconds(), 0.0))
        return plan

    def ending(self, now: datetime) -> Sequence[FreedCapacity]:
        """Returns the capacity that is about to be freed."""
        return self._ending(now)[0]

    def could_shrink_for(self, queued: QueuedGang, freed: Sequence[FreedCapacity], now: datetime) -> bool:
        """Returns whether elastic gangs could make room for a waiting gang."""
        running = [state.elastic for state in self._states.values()]
        return bool(running) and could_shrink_for(self._view, queued, running, now, self._policy, freed)

    def updates(
        self, plan: ResizePlan, nominated: NominatedNodes | None, updated: AbstractSet[str], now: datetime
    ) -> list[StatusUpdate]:
        """Returns status updates of all gangs but those in `updated`, which already have one in this pass.

        No member is added on the `nominated` nodes.
        """
        nodes = frozenset[str]() if nominated is None else nominated.nodes
        followed = [update for key in sorted(self._incomplete - updated) for update in self._follow(key, nodes, now)]
        updated = updated | {key_of(update.gang) for update in followed}
        requests = {resize.key: resize for resize in plan.resizes}
        requested = [
            update
            for key in sorted((self._requested | requests.keys()) - updated)
            for update in self._request(key, requests)
        ]
        return followed + requested

    def _follow(self, key: str, nominated: AbstractSet[str], now: datetime) -> Sequence[StatusUpdate]:
        """Follow a resized spec. All gangs must have been processed, since they may have freed capacity."""
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND or state_of(gang) is not GangState.PLACED:
            self._incomplete.discard(key)
            return ()
        gang = self._observed_requests.apply(key, gang)
        status = lifecycle.resized_status(gang, reserve_resized(self._view, gang, self._quotas, nominated), now)
        if len(placed_nodes(status)) == len(wanted_members(gang)):
            self._incomplete.discard(key)
        is_same = status.placement == gang.status.placement and status.members == gang.status.members
        return () if is_same else (StatusUpdate(gang, status, StatusChange.RESIZED),)

    def _request(self, key: str, requests: dict[str, ResizeRequest]) -> Sequence[StatusUpdate]:
        gang = self._gangs.get(key)
        if gang is None or gang.status.phase != BOUND:
            self._requested.discard(key)
            return ()
        request, state, member = requests.get(key), self._states.get(key), elastic_kind(gang.spec)
        if request is None:
            status, change = lifecycle.without_resize_request(gang.status), StatusChange.REQUEST_WITHDRAWN
        elif member is None or state is None or member.count != state.elastic.count:
            # The owner changed the count meanwhile, and a request would override it; the gang is processed again soon.
            return ()
        else:
            status = lifecycle.resize_request_status(
                gang, request.kind, request.target, request.leaving, request.reason
            )
            change = StatusChange.GROW_REQUESTED if not request.leaving else StatusChange.SHRINK_REQUESTED
        return () if status == gang.status else (StatusUpdate(gang, status, change),)

    def _ending(self, now: datetime) -> tuple[Sequence[FreedCapacity], datetime | None]:
        """Returns the capacity that is about to be freed, and the time at which some of it no longer counts."""
        counted = [
            (_end(parse_time_or_none(until), now), FreedCapacity(node, amounts))
            for node, amounts, until in self._view.terminating_pods()
        ]
        for state in self._states.values():
            end = _end(state.elastic.last_resize_time, now)
            counted += [(end, ending) for ending in state.stale_pods]
            # This pass releases their assignments; later passes see their pods.
            counted += [(now + timedelta(seconds=RELEASE_TIMEOUT_SECONDS), ending) for ending in state.removed_members]
        left = [(end, ending) for end, ending in counted if end > now]
        return [ending for _, ending in left], min((end for end, _ in left), default=None)

    def _note_wait(self, gang: Gang, now: datetime) -> None:
        admitted, since = parse_time_or_none(gang.status.admitted_time), parse_time_or_none(gang.status.queued_time)
        if admitted is None or since is None or admitted > now:
            return
        if (admitted - since).total_seconds() >= _MIN_WAIT_SECONDS:
            self._last_wait_time = admitted if self._last_wait_time is None else max(admitted, self._last_wait_time)


def _end(moment: datetime | None, now: datetime) -> datetime:
    """Returns the time until which capacity counts that should be freed at `moment`."""
    return now if moment is None else moment + timedelta(seconds=RELEASE_TIMEOUT_SECONDS)


def _stale_pods(gang: Gang, pods: Iterable[ScheduledPod]) -> list[ScheduledPod]:
    """Returns bound, unfinished pods of members that are not in the placement."""
    placed = placed_nodes(gang.status)
    return [
        pod
        for pod in pods
        if lifecycle.is_unfinished(pod) and lifecycle.is_bound(pod) and member_of(pod.metadata) not in placed
    ]


def _freed_capacity(member: str, node: str, elastic: ElasticGang) -> FreedCapacity:
    """Returns the capacity that a member frees; nothing for kinds that are not resized."""
    return FreedCapacity(node, dict(elastic.pod_set.requests) if kind_of(member) == elastic.kind else {})


def _is_settled(pod: ScheduledPod | None) -> bool:
    """Reports whether a member's pod is bound and not being deleted."""
    return pod is not None and lifecycle.is_bound(pod) and pod.metadata.deletion_timestamp is None
