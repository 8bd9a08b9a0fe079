"""The extender's verbs `filter` and `bind`, on decoded requests. No sockets.

Theory of operation. `filter` is a look-up, because kube-scheduler considers no other pod until it has the response. A
member of a gang gets exactly its assigned node. If it has none, or if that node is not among those offered, all nodes
are rejected as unresolvable, which means that preemption cannot help. Other pods are kept off reserved capacity.

A `bind` request has the pod's name and uid, but not its labels. `filter` therefore remembers the membership of each pod
for which it returned a node; kube-scheduler always filters before it binds. A pod that was not filtered here (the gang
scheduler restarted in between) is rejected, and kube-scheduler filters it again. So is a pod with another node.

Threads: `filter` and `bind` run in the server's event loop; responses to waiting calls come from other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfjob_controller.gangscheduler.bindrequests import STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.extender.wire import BindArgs, BindResult, FilterArgs, FilterResult, WirePod
from tfjob_controller.gangscheduler.permit.permit import OnResponse

NOT_SYNCED = "the gang scheduler has not synced its caches yet"
NOT_FILTERED = "the pod was not filtered by this gang scheduler"
NODE_REJECTED = "the node of the gang's member did not pass kube-scheduler's own filters"
NODE_NOT_OFFERED = "filter did not return this node for the pod"

# Filtered pods that were not bound yet. A scheduling cycle that fails after filter leaves one behind.
_MAX_FILTERED_PODS = 20_000


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """A member's node, or the constant reason why it has none."""

    node: str = ""
    reason: str = ""


class Placements(Protocol):
    """The decisions that the verbs look up, in the server's event loop.

    kube-scheduler waits for them, so an implementation takes microseconds and no lock that is held for long.
    """

    def member_of(self, pod: WirePod) -> GangMember | None:
        """Returns the pod's membership, from its labels and namespace; None for a pod of no gang."""

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        """Returns the member's node."""

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        """Returns, for a pod of no gang, the nodes with unreserved capacity, and the reasons of the others."""

    @property
    def is_synced(self) -> bool:
        """Reports whether the caches are synced."""


class BindPermit(Protocol):
    """The part of `permit.Permit` that the verbs use."""

    def request_bind(self, member: GangMember, pod: BindRequest, on_response: OnResponse) -> None: ...
    def bind_single(self, pod: BindRequest, on_response: OnResponse) -> None: ...


class NodeRejectionListener(Protocol):
    """Learns which nodes kube-scheduler's own filters rejected, so that members are placed elsewhere."""

    def node_rejected(self, member: GangMember, node: str) -> None:
        """Record the rejection. Called in the server's event loop."""


# Receives a bind call's result, in the event loop.
OnBindResult = Callable[[BindResult], None]


@dataclass(frozen=True, slots=True)
class _FilteredPod:
    """A filtered pod. A member may be bound to `node` only."""

    member: GangMember | None
    node: str = ""


class ExtenderVerbs:
    """Implements `filter` and `bind`."""

    def __init__(
        self, placements: Placements, permit: BindPermit, rejection_listener: NodeRejectionListener | None = None
    ) -> None:
        self._placements = placements
        self._permit = permit
        self._rejection_listener = rejection_listener
        self._filtered: dict[str, _FilteredPod] = {}
        self._pending: set[_PendingCall] = set()
        self._responses: _ResponseQueue | None = None
        self._is_stopped = False

    @property
    def is_synced(self) -> bool:
        return self._placements.is_synced

    def stop(self) -> None:
        """Answer waiting calls with an error and reject later ones. Called in the event loop."""
        self._is_stopped = True
        for call in list(self._pending):
            call.complete(STOPPING)

    def filter(self, args: FilterArgs) -> FilterResult:
        """Returns which of the nodes may take the pod. Repeated requests get the same response."""
        member = self._placements.member_of(args.pod)
        if member is None:
            return self._filter_other(args)
        found = self._placements.node_for(member.gang, member.attempt, member.name)
        if found.node and found.node in args.node_names:
            self._remember(args.pod.metadata.uid, _FilteredPod(member, found.node))
            return FilterResult(node_names=[found.node])
        if found.node and self._rejection_listener is not None and args.node_names:
            self._rejection_listener.node_rejected(member, found.node)
        reason = NODE_REJECTED if found.node else found.reason
        return FilterResult(unresolvable_nodes=dict.fromkeys(args.node_names, reason))

    def bind(self, args: BindArgs, answer: OnBindResult) -> None:
        """Bind the pod and answer once its whole gang can be bound, at once or after minutes. For the event loop."""
        filtered = self._filtered.get(args.uid)
        if self._is_stopped:
            answer(BindResult(STOPPING))
        elif filtered is None:
            answer(BindResult(NOT_FILTERED))
        elif filtered.node and filtered.node != args.node:
            answer(BindResult(NODE_NOT_OFFERED))
        else:
            self._wait_for_binding(filtered.member, args, answer)

    def _wait_for_binding(self, member: GangMember | None, args: BindArgs, answer: OnBindResult) -> None:
        call = _PendingCall(self, args.uid, answer)
        self._pending.add(call)
        responses = self._queue_of_this_loop()
        pod = BindRequest(args.namespace, args.name, args.uid, args.node)
        if member is None:
            self._permit.bind_single(pod, lambda error: responses.put(call, error))
        else:
            self._permit.request_bind(member, pod, lambda error: responses.put(call, error))

    def call_ended(self, call: _PendingCall, uid: str, error: str) -> None:
        """Forget a call that was answered."""
        self._pending.discard(call)
        if not error:
            self._filtered.pop(uid, None)

    def _queue_of_this_loop(self) -> _ResponseQueue:
        """Returns this event loop's queue. A server thread that was restarted has another event loop."""
        loop = asyncio.get_running_loop()
        if self._responses is None or self._responses.loop is not loop:
            self._responses = _ResponseQueue(loop)
        return self._responses

    def _filter_other(self, args: FilterArgs) -> FilterResult:
        allowed, rejected = self._placements.allowed_nodes(args.pod, args.node_names)
        if allowed:
            self._remember(args.pod.metadata.uid, _FilteredPod(None))
        return FilterResult(node_names=allowed, unresolvable_nodes=rejected)

    def _remember(self, uid: str, filtered: _FilteredPod) -> None:
        self._filtered.pop(uid, None)
        self._filtered[uid] = filtered
        if len(self._filtered) > _MAX_FILTERED_PODS:
            del self._filtered[next(iter(self._filtered))]


class _PendingCall:
    """A waiting bind call. Only its first completion counts."""

    def __init__(self, verbs: ExtenderVerbs, uid: str, answer: OnBindResult) -> None:
        self._verbs = verbs
        self._uid = uid
        self._answer: OnBindResult | None = answer

    def complete(self, error: str) -> None:
        """Answer the call. Called in the event loop."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._verbs.call_ended(self, self._uid, error)
            answer(BindResult(error))


class _ResponseQueue:
    """Passes responses from any thread to the event loop, in batches, because each wake-up costs a system call.

    `_is_called` is reset before the queue is drained, so a response that is added meanwhile is drained or wakes again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._items: deque[tuple[_PendingCall, str]] = deque()
        self._is_called = False

    def put(self, call: _PendingCall, error: str) -> None:
        self._items.append((call, error))
        if not self._is_called:
            self._is_called = True
            # The server has stopped, so no call waits any more.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_called = False
        while self._items:
            call, error = self._items.popleft()
            call.complete(error)
