"""The PreBind check: verifies just before members are bound that the gang still runs and their nodes have capacity.

Theory of operation. kube-scheduler filtered every member before its bind call, but the first member of a gang may have
called minutes before the last. Meanwhile another scheduler may have bound a pod to its node, or the node was cordoned
or deleted. Members that are bound together are therefore checked together against the view. If any of them does not
fit, none is posted: every call gets an error, the loop reassigns those members, and kube-scheduler calls again for all.
Each member is checked once more, alone, directly before its Binding is posted; behind many others, or after a failure,
that may be many seconds later.

Capacity is taken by pods and by Bindings in flight. Other gangs' reservations do not count: if a node is overcommitted,
the first gang that calls is bound and members of the others are reassigned. Nearly always no node is overcommitted, and
one comparison for each node shows it. Pods that request more than their gang states are not covered by its reservation,
and take the long way.

A Binding may wait for tens of seconds before it is retried, and its Gang may be deleted, recreated or suspended
meanwhile. The loop learns of it too, but may be busy writing. The cache is therefore read before each Binding is
posted, so that only Bindings that were in flight at that time can still succeed.

A process that was frozen may wake with Bindings to post while another replica leads; it posts none of them.

Threads: any. The check reads single `NodeInfo`s of the view, so it needs no lock and may run in the event loop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import Gang, gang_key_of, kind_of, member_of, must_leave
from tfjob_controller.gangscheduler.binding.binder import Binder, OnResult
from tfjob_controller.gangscheduler.bindrequests import NO_CAPACITY, NOT_ADMITTED, STOPPING, BindRequest
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.scheduling.nodeinfo import NodeInfo
from tfjob_controller.scheduling.podsets import PodSet, valid_pod_sets_of
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# The watch shows a bound pod long before, unless the pod was deleted at once.
_OBSERVED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """A pod's requests on its node."""

    key: str
    gang: str
    node: str
    pod_set: PodSet
    # Whether the gang's reservation counts these requests: they are not more than the gang states.
    is_reserved: bool


class PreBindCheck:
    """Checks capacity before it passes pods to the binder."""

    def __init__(
        self,
        binder: Binder,
        gangs: Store[Gang],
        pods: Store[ScheduledPod],
        state: SharedState,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_leading` is called before each Binding and must be current."""
        self._is_leading = is_leading
        self._binder = binder
        self._gangs = gangs
        self._pods = pods
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        # By pod uid: Bindings in flight, and those that succeeded recently.
        self._claims: dict[str, _Claim] = {}
        # The same claims by node, without empty sets.
        self._claims_by_node: dict[str, set[_Claim]] = {}
        self._succeeded: deque[tuple[float, str]] = deque()

    def submit(self, pods: Sequence[BindRequest], on_result: OnResult) -> None:
        claims = self._claims_of(pods)
        with self._lock:
            self._drop_observed()
            full = self._full(claims.values())
            if not full:
                for uid, claim in claims.items():
                    self._add_claim(uid, claim)
        if full:
            gangs = sorted({claim.gang for claim in claims.values()})
            log.info("members not bound, their nodes are full", keys=gangs, nodes=full)
            for pod in pods:
                on_result(pod, NO_CAPACITY)
            for gang in gangs:
                self._state.enqueue(gang)
            return

        uids = self._gang_uids(pods)

        def on_binding_result(pod: BindRequest, error: str) -> None:
            self._binding_ended(pod.uid, error)
            on_result(pod, error)
            if error == NO_CAPACITY and pod.uid in claims:
                self._state.enqueue(claims[pod.uid].gang)

        self._binder.submit(pods, on_binding_result, lambda pod: self._rejection(pod, uids.get(pod.uid)))

    def _rejection(self, pod: BindRequest, gang: tuple[str, str] | None) -> str:
        """Check one Binding directly before it is posted. `gang` is the Gang's key and uid."""
        if not self._is_leading():
            return STOPPING
        if gang is not None and not self._is_wanted(*gang):
            return NOT_ADMITTED
        with self._lock:
            claim = self._claims.get(pod.uid)
            return NO_CAPACITY if claim is not None and self._full([claim]) else ""

    def _is_wanted(self, key: str, uid: str) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.metadata.uid == uid and lifecycle.is_wanted(gang) and not must_leave(gang)

    def _gang_uids(self, pods: Iterable[BindRequest]) -> dict[str, tuple[str, str]]:
        """Returns the key and uid of each pod's Gang, by pod uid; the uid is empty if the Gang is deleted."""
        uids: dict[str, tuple[str, str]] = {}
        for pod in pods:
            cached = self._pods.get(pod.key)
            key = gang_key_of(cached.metadata) if cached is not None and cached.metadata.uid == pod.uid else ""
            if key:
                gang = self._gangs.get(key)
                uids[pod.uid] = key, gang.metadata.uid if gang is not None else ""
        return uids

    def _claims_of(self, pods: Iterable[BindRequest]) -> dict[str, _Claim]:
        """Returns claims by pod uid, without pods that are in no gang, not in the cache, or bound."""
        pod_sets: dict[str, tuple[Mapping[str, PodSet], bool]] = {}
        claims: dict[str, _Claim] = {}
        for pod in pods:
            cached = self._pods.get(pod.key)
            gang = gang_key_of(cached.metadata) if cached is not None else ""
            if cached is None or not gang or cached.metadata.uid != pod.uid or cached.spec.node_name:
                continue
            if gang not in pod_sets:
                pod_sets[gang] = self._pod_sets_of(gang)
            by_kind, is_reserved = pod_sets[gang]
            pod_set = by_kind.get(kind_of(member_of(cached.metadata)))
            if pod_set is not None:
                claims[pod.uid] = _Claim(pod.key, gang, pod.node, pod_set, is_reserved)
        return claims

    def _pod_sets_of(self, key: str) -> tuple[Mapping[str, PodSet], bool]:
        """Returns the pod sets by name, and whether they request what the gang states."""
        gang = self._gangs.get(key)
        if gang is None:
            return {}, True
        observed = self._state.observed_requests.apply(key, gang)
        return {pod_set.name: pod_set for pod_set in valid_pod_sets_of(observed.spec)}, observed is gang

    def _full(self, claims: Iterable[_Claim]) -> list[str]:
        """Returns the nodes that cannot take their claims."""
        by_node: dict[str, list[_Claim]] = {}
        for claim in claims:
            by_node.setdefault(claim.node, []).append(claim)
        infos = self._state.view.node_infos
        return sorted(
            node for node, claims_on_node in by_node.items() if not self._has_capacity(infos.get(node), claims_on_node)
        )

    def _has_capacity(self, info: NodeInfo | None, claims_on_node: Sequence[_Claim]) -> bool:
        pod_sets = {id(claim.pod_set): claim.pod_set for claim in claims_on_node}.values()
        if info is None or any(pod_set.node_filter.rejection(info.node) for pod_set in pod_sets):
            return False
        requested = _total_requests(claims_on_node)
        is_reserved = all(claim.is_reserved for claim in claims_on_node)
        if is_reserved and all(info.free.get(name, 0) >= 0 for name in requested):
            # The node is not overcommitted, so all its reservations fit.
            return True
        pods = {claim.key for claim in claims_on_node}
        taken = _total_requests(
            claim
            for claim in self._claims_by_node.get(info.name, ())
            if claim.key not in pods and not self._state.view.has_pod(claim.key)
        )
        return all(
            info.free.get(name, 0) + info.reserved.get(name, 0) - taken.get(name, 0) >= amount
            for name, amount in requested.items()
        )

    def _drop_observed(self) -> None:
        """Drop succeeded claims that the view counts by now, or should have counted long ago."""
        long_ago = self._clock.monotonic() - _OBSERVED_SECONDS
        while self._succeeded:
            moment, uid = self._succeeded[0]
            claim = self._claims.get(uid)
            if claim is not None and moment > long_ago and not self._state.view.has_pod(claim.key):
                return
            self._remove_claim(uid)
            self._succeeded.popleft()

    def _add_claim(self, uid: str, claim: _Claim) -> None:
        self._remove_claim(uid)
        self._claims[uid] = claim
        self._claims_by_node.setdefault(claim.node, set()).add(claim)

    def _remove_claim(self, uid: str) -> None:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return
        on_node = self._claims_by_node[claim.node]
        on_node.remove(claim)
        if not on_node:
            del self._claims_by_node[claim.node]

    def _binding_ended(self, uid: str, error: str) -> None:
        with self._lock:
            if error:
                self._remove_claim(uid)
            elif uid in self._claims:
                self._succeeded.append((self._clock.monotonic(), uid))


def _total_requests(claims: Iterable[_Claim]) -> dict[str, int]:
    total: dict[str, int] = {}
    for claim in claims:
        for name, amount in claim.pod_set.requests:
            total[name] = total.get(name, 0) + amount
    return total
