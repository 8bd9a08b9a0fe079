"""The last look before members of gangs are bound: is the gang still to run, and has each of them info where it goes?

Theory of operation. kube-scheduler has passed every member when its call came, but the first of a gang may have come
minutes before the last; a pod of another scheduler may have come to its node since, or the node may be cordoned, or
gone. So what is to be bound together is looked at together, in the view. If any of it has no info left, none is posted:
every call gets an error, the loop is told to look at the gang and gives those members other nodes, and all come again.
Each is looked at once more, alone, when it is its turn to be posted: behind many others, or after it has failed, that
may be many seconds later.

Room is what nobody has *taken*: neither pods nor Bindings that are under way. Reservations of others do not count here,
which is what they would want too: where more is reserved than there is, whoever comes first may go, and the others are
moved. Almost always no node is that full, and one look at each tells so.

A Binding may rest for tens of seconds before it is tried again, and its Gang may be deleted, made anew or suspended
meanwhile. The loop hears of that too, but is busy writing, perhaps. So the cache is asked before each is posted: what
is bound for a Gang that has gone was under way when its deletion was heard of, and no more than that.

A process that was frozen may wake with Bindings in its hands while another leads already: it posts none of them.

Threads: any. Only single infos of the view are read, so its lock is not needed: this runs in the server's event loop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import MEMBER_LABEL, Gang, gang_key_of, kind_of
from tfjob_controller.gangscheduler.binding.binder import Objection, OnResult
from tfjob_controller.gangscheduler.bindrequests import NO_CAPACITY, NOT_ADMITTED, STOPPING, BindRequest
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.scheduling.nodeinfo import NodeInfo
from tfjob_controller.scheduling.podsets import PodSet, valid_pod_sets_of
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# A pod that was bound is cached by the watch long before, unless it was deleted at once.
_OBSERVED_SECONDS = 10.0


class PodBinder(Protocol):
    """What is needed of a binder."""

    def submit(self, pods: Sequence[BindRequest], on_result: OnResult, objection: Objection) -> None: ...


@dataclass(frozen=True, slots=True)
class _Claim:
    """A pod, and what it needs where it goes."""

    key: str
    gang: str
    node: str
    pod_set: PodSet


class PreBindCheck:
    """A binder before the binder: see the module."""

    def __init__(
        self,
        binder: PodBinder,
        gangs: Store[Gang],
        pods: Store[ScheduledPod],
        state: SharedState,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_leading` is true to the moment, and asked before each Binding."""
        self._is_leading = is_leading
        self._binder = binder
        self._gangs = gangs
        self._pods = pods
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        # By uid of the pod: Bindings that are under way, or have succeeded not long ago.
        self._claims: dict[str, _Claim] = {}
        self._succeeded: deque[tuple[float, str]] = deque()

    def submit(self, pods: Sequence[BindRequest], on_result: OnResult) -> None:
        claims = self._claims_of(pods)
        with self._lock:
            self._drop_observed()
            full = self._full(claims.values())
            if not full:
                self._claims |= claims
        if full:
            self._reject(pods, claims, full, on_result)
            return

        uids = self._gang_uids(pods)

        def on_binding_result(pod: BindRequest, error: str) -> None:
            self._binding_ended(pod.uid, error)
            on_result(pod, error)
            if error == NO_CAPACITY and pod.uid in claims:
                self._state.enqueue(claims[pod.uid].gang)

        self._binder.submit(pods, on_binding_result, lambda pod: self._objection(pod, uids.get(pod.uid)))

    def _objection(self, pod: BindRequest, gang: tuple[str, str] | None) -> str:
        """When it is this one's turn; `gang` are its Gang's key and uid."""
        if not self._is_leading():
            return STOPPING
        if gang is not None and not self._is_wanted(*gang):
            return NOT_ADMITTED
        with self._lock:
            claim = self._claims.get(pod.uid)
            return NO_CAPACITY if claim is not None and self._full([claim]) else ""

    def _is_wanted(self, key: str, uid: str) -> bool:
        gang = self._gangs.get(key)
        return gang is not None and gang.metadata.uid == uid and lifecycle.is_wanted(gang)

    def _gang_uids(self, pods: Iterable[BindRequest]) -> dict[str, tuple[str, str]]:
        """By the pod's uid: the key and uid of its Gang, as it is now; no uid if that has gone already."""
        found: dict[str, tuple[str, str]] = {}
        for pod in pods:
            cached = self._pods.get(f"{pod.namespace}/{pod.name}")
            key = gang_key_of(cached.metadata) if cached is not None and cached.metadata.uid == pod.uid else ""
            if key:
                gang = self._gangs.get(key)
                found[pod.uid] = key, gang.metadata.uid if gang is not None else ""
        return found

    def _reject(
        self, pods: Sequence[BindRequest], claims: Mapping[str, _Claim], full: Sequence[str], on_result: OnResult
    ) -> None:
        gangs = sorted({claim.gang for claim in claims.values()})
        log.info("no info left for members that were to be bound", keys=gangs, nodes=full)
        for pod in pods:
            on_result(pod, NO_CAPACITY)
        for gang in gangs:
            self._state.enqueue(gang)

    def _claims_of(self, pods: Iterable[BindRequest]) -> dict[str, _Claim]:
        """By uid; without pods of no gang, those that nobody has cached yet, and those that are bound already."""
        pod_sets: dict[str, Mapping[str, PodSet]] = {}
        claims: dict[str, _Claim] = {}
        for pod in pods:
            key = f"{pod.namespace}/{pod.name}"
            found = self._pods.get(key)
            gang = gang_key_of(found.metadata) if found is not None else ""
            if found is None or not gang or found.metadata.uid != pod.uid or found.spec.node_name:
                continue
            if gang not in pod_sets:
                pod_sets[gang] = self._pod_sets_of(gang)
            pod_set = pod_sets[gang].get(kind_of(found.metadata.labels.get(MEMBER_LABEL, "")))
            if pod_set is not None:
                claims[pod.uid] = _Claim(key, gang, pod.node, pod_set)
        return claims

    def _pod_sets_of(self, key: str) -> Mapping[str, PodSet]:
        gang = self._gangs.get(key)
        if gang is None:
            return {}
        return {each.name: each for each in valid_pod_sets_of(self._state.observed_requests.apply(key, gang).spec)}

    def _full(self, claims: Iterable[_Claim]) -> list[str]:
        """The nodes that cannot take what comes to them."""
        by_node: dict[str, list[_Claim]] = {}
        for claim in claims:
            by_node.setdefault(claim.node, []).append(claim)
        infos = self._state.view.node_infos
        return sorted(
            node for node, claims_on_node in by_node.items() if not self._has_capacity(infos.get(node), claims_on_node)
        )

    def _has_capacity(self, info: NodeInfo | None, claims_on_node: Sequence[_Claim]) -> bool:
        pod_sets = {id(claim.pod_set): claim.pod_set for claim in claims_on_node}.values()
        if info is None or any(each.node_filter.rejection(info.node) for each in pod_sets):
            return False
        requested = _total_requests(claims_on_node)
        if all(info.free.get(name, 0) >= 0 for name in requested):
            # All that is reserved has room, this too.
            return True
        taken = _total_requests(
            each
            for each in self._claims.values()
            if each.node == info.name and each not in claims_on_node and not self._state.view.has_pod(each.key)
        )
        return all(
            info.free.get(name, 0) + info.reserved.get(name, 0) - taken.get(name, 0) >= amount
            for name, amount in requested.items()
        )

    def _drop_observed(self) -> None:
        """Those that the view counts by now, and those that it should long since."""
        long_ago = self._clock.monotonic() - _OBSERVED_SECONDS
        while self._succeeded:
            moment, uid = self._succeeded[0]
            claim = self._claims.get(uid)
            if claim is not None and moment > long_ago and not self._state.view.has_pod(claim.key):
                return
            self._claims.pop(uid, None)
            self._succeeded.popleft()

    def _binding_ended(self, uid: str, error: str) -> None:
        with self._lock:
            if error:
                self._claims.pop(uid, None)
            elif uid in self._claims:
                self._succeeded.append((self._clock.monotonic(), uid))


def _total_requests(claims: Iterable[_Claim]) -> dict[str, int]:
    total: dict[str, int] = {}
    for claim in claims:
        for name, amount in claim.pod_set.requests:
            total[name] = total.get(name, 0) + amount
    return total
