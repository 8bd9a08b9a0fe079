"""The extender's verbs: a request's values in, an answer's values out. No sockets.

Theory of operation. `filter` is a look-up and nothing else: kube-scheduler waits for it before it looks at any other
pod. A member of a gang gets exactly the node that it was placed on; while it has none, and where that node is not among
those offered, every node is refused, in constant words, as one that preemption cannot help with. Other pods are kept
off room that is reserved.

`bind` is told a pod's name and uid, but not its labels. So `filter` remembers who a pod is for which it let a node
pass, and kube-scheduler always filters before it binds. A pod that nobody filtered here (the gang scheduler has
restarted in between) is refused: kube-scheduler comes again, and filters first. So is a node that was not answered.

Threads: `filter` and `bind` belong to the server's event loop; answers to parked calls come from other threads.
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

NOT_SYNCED = "the gang scheduler has not read the cluster's state yet"
NOT_FILTERED = "the gang scheduler does not know this pod: it has to be filtered first"
NODE_REFUSED = "the node of the gang's member did not pass kube-scheduler's own filters"
NODE_NOT_OFFERED = "this node was not answered for the pod"

# Pods between filter and bind; a scheduling cycle that ends elsewhere leaves one behind.
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """The node of a member, or in constant words why it has none (yet)."""

    node: str = ""
    reason: str = ""


class Placements(Protocol):
    """What the verbs ask of who decides.

    All but `is_synced` is asked in the server's event loop while kube-scheduler waits: it must be a look-up, of
    microseconds, and must not wait for a lock that somebody holds for long.
    """

    def member_of(self, pod: WirePod) -> GangMember | None:
        """Who the pod is, by its labels and namespace; None for a pod of no gang."""

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        """Where this member goes."""

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        """For a pod of no gang: nodes with room outside reservations, and of the others why not."""

    @property
    def is_synced(self) -> bool:
        """Has the cluster's state been read?"""


class BindPermit(Protocol):
    """What the verbs need of a `Gate`."""

    def request_bind(self, who: GangMember, pod: BindRequest, on_response: OnResponse) -> None: ...
    def bind_single(self, pod: BindRequest, on_response: OnResponse) -> None: ...


class NodeRejectionListener(Protocol):
    """Wants to know that kube-scheduler's own filters refuse a member's node, so that it is placed elsewhere."""

    def node_rejected(self, who: GangMember, node: str) -> None:
        """Called in the server's event loop: must only take note."""


# Gets a bind call's result, in the event loop.
OnBound = Callable[[BindResult], None]


@dataclass(frozen=True, slots=True)
class _Passed:
    """A pod that `filter` let pass; `node` is the only one that it may be bound to, if there is such."""

    who: GangMember | None
    node: str = ""


class ExtenderVerbs:
    """See the module."""

    def __init__(
        self, placements: Placements, permit: BindPermit, refusals: NodeRejectionListener | None = None
    ) -> None:
        self._placements = placements
        self._permit = permit
        self._refusals = refusals
        self._passed: dict[str, _Passed] = {}
        self._waiting: set[_Parked] = set()
        self._handover: _Handover | None = None
        self._is_stopped = False

    @property
    def is_synced(self) -> bool:
        return self._placements.is_synced

    def stop(self) -> None:
        """Answer parked calls with an error, and refuse later ones. To be called in the event loop."""
        self._is_stopped = True
        for parked in list(self._waiting):
            parked.settle(STOPPING)

    def filter(self, args: FilterArgs) -> FilterResult:
        """Which of these nodes may take this pod? The same question gets the same answer."""
        who = self._placements.member_of(args.pod)
        if who is None:
            return self._filter_other(args)
        found = self._placements.node_for(who.gang, who.attempt, who.member)
        if found.node and found.node in args.node_names:
            self._remember(args.pod.metadata.uid, _Passed(who, found.node))
            return FilterResult(node_names=[found.node])
        if found.node and self._refusals is not None and args.node_names:
            self._refusals.node_rejected(who, found.node)
        reason = NODE_REFUSED if found.node else found.reason
        return FilterResult(unresolvable_nodes=dict.fromkeys(args.node_names, reason))

    def bind(self, args: BindArgs, answer: OnBound) -> None:
        """Bind the pod; answers once all of its gang can be bound, at once or in minutes. In the event loop."""
        passed = self._passed.get(args.uid)
        if self._is_stopped:
            answer(BindResult(STOPPING))
        elif passed is None:
            answer(BindResult(NOT_FILTERED))
        elif passed.node and passed.node != args.node:
            answer(BindResult(NODE_NOT_OFFERED))
        else:
            self._park(passed.who, args, answer)

    def _park(self, who: GangMember | None, args: BindArgs, answer: OnBound) -> None:
        parked = _Parked(self, args.uid, answer)
        self._waiting.add(parked)
        handover = self._handover_here()
        pod = BindRequest(args.namespace, args.name, args.uid, args.node)
        if who is None:
            self._permit.bind_single(pod, lambda error: handover.put(parked, error))
        else:
            self._permit.request_bind(who, pod, lambda error: handover.put(parked, error))

    def ended(self, parked: _Parked, uid: str, error: str) -> None:
        """A parked call has its answer."""
        self._waiting.discard(parked)
        if not error:
            self._passed.pop(uid, None)

    def _handover_here(self) -> _Handover:
        """The event loop's; a thread that died was started again with another one."""
        loop = asyncio.get_running_loop()
        if self._handover is None or self._handover.loop is not loop:
            self._handover = _Handover(loop)
        return self._handover

    def _filter_other(self, args: FilterArgs) -> FilterResult:
        kept, refused = self._placements.allowed_nodes(args.pod, args.node_names)
        if kept:
            self._remember(args.pod.metadata.uid, _Passed(None))
        return FilterResult(node_names=kept, unresolvable_nodes=refused)

    def _remember(self, uid: str, passed: _Passed) -> None:
        self._passed.pop(uid, None)
        self._passed[uid] = passed
        if len(self._passed) > _REMEMBERED:
            del self._passed[next(iter(self._passed))]


class _Parked:
    """A bind call that waits. It is settled once, whoever comes first."""

    def __init__(self, service: ExtenderVerbs, uid: str, answer: OnBound) -> None:
        self._service = service
        self._uid = uid
        self._answer: OnBound | None = answer

    def settle(self, error: str) -> None:
        """In the event loop."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._service.ended(self, self._uid, error)
            answer(BindResult(error))


class _Handover:
    """Brings answers from any thread into the event loop, many at once: to wake it costs a system call.

    `_is_called` is taken back before the pile is looked at. So what comes meanwhile is either found or calls again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pile: deque[tuple[_Parked, str]] = deque()
        self._is_called = False

    def put(self, parked: _Parked, error: str) -> None:
        self._pile.append((parked, error))
        if not self._is_called:
            self._is_called = True
            # Where the server has stopped meanwhile nobody waits any more.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_called = False
        while self._pile:
            parked, error = self._pile.popleft()
            parked.settle(error)
