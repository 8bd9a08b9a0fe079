"""The extender's verbs `filter` and `bind`, on decoded requests. No sockets.

Theory of operation. `filter` is a look-up, because kube-scheduler considers no other pod until it has the response. A
member of a gang gets exactly its assigned node. If it has none, or if that node is not among those offered, all nodes
are rejected as unresolvable, which means that preemption cannot help. Other pods do not get reserved capacity.

A `bind` request has the pod's name and uid, but not its labels. `filter` therefore remembers the membership of each pod
for which it returned a node, and these nodes; kube-scheduler always filters before it binds. A pod that was not
filtered here (the gang scheduler restarted in between) is rejected, and kube-scheduler filters it again. So is a pod
with another node.

Threads: `filter` and `bind` run in the server's event loop; responses to waiting calls come from other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    GANG_LABEL,
    Gang,
    member_of,
    must_leave,
    parse_index,
)
from tfjob_controller.gangscheduler.bindrequests import STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.extender.wire import (
    BindResult,
    FilterArgs,
    FilterResult,
    WirePod,
    decode_names,
    encode_names,
)
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.gangpods import PlacedNodes
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.scheduling.nodeinfo import nodes_without_capacity
from tfjob_controller.util.fairness import FairCache

NOT_SYNCED = "the gang scheduler has not synced its caches yet"
NOT_FILTERED = "the pod was not filtered by this gang scheduler"
NODE_REJECTED = "the node of the gang's member did not pass kube-scheduler's own filters"
NODE_NOT_OFFERED = "filter did not return this node for the pod"
NO_GANG = "there is no Gang with the name in the pod's label"
NOT_ADMITTED = "the gang waits for capacity"
NOT_A_MEMBER = "the pod is not a placed member of its gang"
LEAVING = "the gang is preempted, and its pods are to be deleted"
OLD_ATTEMPT = "the pod is of another attempt of its gang than the present one"
RESERVED = "the remaining capacity of this node is reserved for gangs"
UNREADABLE = "the pod cannot be read"

# No attempt has this number; it represents an invalid label.
_NO_ATTEMPT = -1
# Filtered pods that were not bound yet. A scheduling cycle that fails after filter leaves one behind.
_MAX_FILTERED_PODS = 20_000
# The limit for node lists of pods of no gang: 2,000 pods with 1,000 nodes each, if no two have the same list.
_MAX_NODE_BYTES = 64 * 1024 * 1024
# Lists to compare a new one with. kube-scheduler repeats some, since pods of the same kind follow each other.
_RECENT_LISTS = 4


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """A member's node, or the constant reason why it has none."""

    node: str = ""
    reason: str = ""


class GangPlacements:
    """Looks up the admission loop's decisions.

    kube-scheduler waits for the methods, so none waits for the loop's lock. A member's node is read from the cached
    Gang. For a pod of no gang each node's capacity is read alone: a pass that reserves capacity meanwhile may be seen
    on some nodes only, as if the call had come earlier for the others. A gang's nodes are checked before its Bindings.
    """

    def __init__(self, gangs: Store[Gang], state: SharedState, is_synced: Callable[[], bool]) -> None:
        self._gangs = gangs
        self._state = state
        self.is_synced = is_synced
        # kube-scheduler filters a gang's members one after the other.
        self._placed = PlacedNodes()

    def member_of(self, pod: WirePod) -> GangMember | None:
        """Returns the pod's membership, from its labels and namespace; None for a pod of no gang."""
        labels = pod.metadata.labels
        name = labels.get(GANG_LABEL, "")
        if not name:
            return None
        attempt = parse_index(labels.get(ATTEMPT_LABEL, ""))
        return GangMember(
            f"{pod.metadata.namespace}/{name}",
            attempt if attempt is not None else _NO_ATTEMPT,
            member_of(pod.metadata),
        )

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        gang = self._gangs.get(gang_key)
        if gang is None:
            return NodeAssignment(reason=NO_GANG)
        if gang.status.phase not in (ADMITTED, BOUND):
            return NodeAssignment(reason=NOT_ADMITTED)
        if gang.status.attempt != attempt:
            return NodeAssignment(reason=OLD_ATTEMPT)
        if must_leave(gang):
            return NodeAssignment(reason=LEAVING)
        node = self._placed.of(gang.status).get(member, "")
        return NodeAssignment(node, "" if node else NOT_A_MEMBER)

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        """Returns, for a pod of no gang, the nodes with unreserved capacity, and the reasons of the others."""
        try:
            amounts = tuple(requests_of(SCHEDULED_PODS.decode(pod.body)).items())
        except (msgspec.MsgspecError, ValueError):
            return (), dict.fromkeys(names, UNREADABLE)
        full = nodes_without_capacity(self._state.view.node_infos, names, amounts)
        full |= self._nodes_with_nominated_capacity(amounts).intersection(names)
        if not full:
            return names, {}
        return [name for name in names if name not in full], dict.fromkeys(sorted(full), RESERVED)

    def _nodes_with_nominated_capacity(self, amounts: Sequence[tuple[str, int]]) -> set[str]:
        """Returns nodes without capacity for the pod beside what running gangs free there for a waiting gang."""
        nominated, infos = self._state.nominated, self._state.view.node_infos
        released = {} if nominated is None else nominated.released
        return {
            node
            for node, freed in released.items()
            if (info := infos.get(node)) is not None
            and any(info.free.get(name, 0) - freed.get(name, 0) < amount for name, amount in amounts)
        }


# Receives a bind call's result, in the event loop.
OnBindResult = Callable[[BindResult], None]


@dataclass(slots=True, eq=False)
class _NodeList:
    """Nodes of pods of no gang, as a JSON list, which only `bind` decodes. `users` is the number of its pods."""

    names: bytes
    users: int


@dataclass(frozen=True, slots=True)
class _FilteredPod:
    """A filtered pod, and the nodes that `filter` returned: `node` for a member, `nodes` for other pods."""

    member: GangMember | None
    node: str = ""
    nodes: _NodeList | None = None

    def may_be_bound_to(self, node: str) -> bool:
        return node == self.node if self.nodes is None else node in decode_names(self.nodes.names)


class _FilteredPods:
    """The filtered pods by namespace and uid.

    Their number is limited, and for pods of no gang also the size of their node lists. Beyond these limits, the oldest
    pods of the namespace with the most pods are removed.
    """

    def __init__(self) -> None:
        self._members: FairCache[str, _FilteredPod] = FairCache(_MAX_FILTERED_PODS)
        self._others: FairCache[str, _FilteredPod] = FairCache(_MAX_FILTERED_PODS)
        self._recent: deque[_NodeList] = deque(maxlen=_RECENT_LISTS)
        self._bytes = 0

    def get(self, namespace: str, uid: str) -> _FilteredPod | None:
        return self._members.get(namespace, uid) or self._others.get(namespace, uid)

    def add_member(self, namespace: str, uid: str, member: GangMember, node: str) -> None:
        self.remove(namespace, uid)
        self._members.put(namespace, uid, _FilteredPod(member, node))

    def add_other(self, namespace: str, uid: str, names: bytes) -> None:
        """Adds a pod of no gang with the names of its nodes as a JSON list."""
        nodes = self._use(names)
        self.remove(namespace, uid)
        self._removed(self._others.put(namespace, uid, _FilteredPod(None, nodes=nodes)))
        while self._bytes > _MAX_NODE_BYTES:
            self._removed(self._others.displace())

    def remove(self, namespace: str, uid: str) -> None:
        self._members.remove(namespace, uid)
        self._removed(self._others.remove(namespace, uid))

    def _removed(self, pod: _FilteredPod | None) -> None:
        if pod is not None and pod.nodes is not None:
            self._release(pod.nodes)

    def _use(self, names: bytes) -> _NodeList:
        for nodes in self._recent:
            if nodes.names == names:
                nodes.users += 1
                return nodes
        nodes = _NodeList(names, users=1)
        self._recent.append(nodes)
        self._bytes += len(names)
        return nodes

    def _release(self, nodes: _NodeList) -> None:
        nodes.users -= 1
        if nodes.users == 0:
            self._bytes -= len(nodes.names)
            if nodes in self._recent:
                self._recent.remove(nodes)


class ExtenderVerbs:
    """Implements `filter` and `bind`."""

    def __init__(self, placements: GangPlacements, permit: Permit, state: SharedState) -> None:
        self.is_synced = placements.is_synced
        self._placements = placements
        self._permit = permit
        self._state = state
        self._filtered = _FilteredPods()
        self._pending: set[_PendingCall] = set()
        self._responses: _ResponseQueue | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Completes waiting calls with an error and rejects later ones. Called in the event loop."""
        self._is_stopped = True
        for call in list(self._pending):
            self._complete(call, STOPPING)

    def filter(self, args: FilterArgs) -> FilterResult:
        """Returns which of the nodes may take the pod. Repeated requests get the same response."""
        member = self._placements.member_of(args.pod)
        if member is None:
            return self._filter_other(args)
        target = self._placements.node_for(member.gang, member.attempt, member.name)
        if target.node and target.node in args.node_names:
            self._filtered.add_member(args.pod.metadata.namespace, args.pod.metadata.uid, member, target.node)
            return FilterResult(node_names=[target.node])
        if target.node and args.node_names:
            self._state.node_rejected(member, target.node)
        reason = NODE_REJECTED if target.node else target.reason
        return FilterResult(unresolvable_nodes=dict.fromkeys(args.node_names, reason))

    def bind(self, pod: BindRequest, answer: OnBindResult) -> None:
        """Binds the pod and responds once its whole gang can be bound. Called in the event loop."""
        filtered = self._filtered.get(pod.namespace, pod.uid)
        if self._is_stopped:
            answer(BindResult(STOPPING))
        elif filtered is None:
            answer(BindResult(NOT_FILTERED))
        elif not filtered.may_be_bound_to(pod.node):
            answer(BindResult(NODE_NOT_OFFERED))
        else:
            self._wait_for_binding(filtered.member, pod, answer)

    def _wait_for_binding(self, member: GangMember | None, pod: BindRequest, answer: OnBindResult) -> None:
        call = _PendingCall(pod.namespace, pod.uid, answer)
        self._pending.add(call)
        responses = self._queue_of_this_loop()
        if member is None:
            self._permit.bind_single(pod, lambda error: responses.put(call, error))
        else:
            self._permit.request_bind(member, pod, lambda error: responses.put(call, error))

    def _complete(self, call: _PendingCall, error: str) -> None:
        """Responds to a waiting call, in the event loop. Only its first completion counts."""
        if call not in self._pending:
            return
        self._pending.remove(call)
        if not error:
            self._filtered.remove(call.namespace, call.uid)
        call.answer(BindResult(error))

    def _queue_of_this_loop(self) -> _ResponseQueue:
        """Returns this event loop's queue. A server thread that was restarted has another event loop."""
        loop = asyncio.get_running_loop()
        if self._responses is None or self._responses.loop is not loop:
            self._responses = _ResponseQueue(loop, self._complete)
        return self._responses

    def _filter_other(self, args: FilterArgs) -> FilterResult:
        allowed, rejected = self._placements.allowed_nodes(args.pod, args.node_names)
        meta = args.pod.metadata
        if allowed:
            names = encode_names(allowed) if rejected else args.node_names_json
            self._filtered.add_other(meta.namespace, meta.uid, names)
        else:
            self._filtered.remove(meta.namespace, meta.uid)
        return FilterResult(node_names=allowed, unresolvable_nodes=rejected)


@dataclass(frozen=True, slots=True, eq=False)
class _PendingCall:
    """A waiting bind call."""

    namespace: str
    uid: str
    answer: OnBindResult


class _ResponseQueue:
    """Passes responses from any thread to the event loop, in batches, because each wake-up costs a system call.

    `_is_called` is reset before the queue is drained, so a response that is added meanwhile is drained or wakes again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, complete: Callable[[_PendingCall, str], None]) -> None:
        self.loop = loop
        self._complete = complete
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
            self._complete(*self._items.popleft())
