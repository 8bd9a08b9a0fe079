"""State that the gang scheduler's threads share: the cluster view, and the gangs that the admission loop must process.

Theory of operation. The informers' handlers keep the view current. A thread that learns of a change which may affect a
gang marks the gang here and returns; the loop takes all marked gangs at once (`take`). Other threads therefore depend
on this module, and none depends on the loop: a gang's path leads from here to the loop (admission/loop.py), to Permit
(permit/permit.py) and to the binder (binding/binder.py), and back only through the marks.

`RejectedNodes` records which nodes kube-scheduler's own filters rejected for which members, so that these members are
placed elsewhere. A rejection expires: ports become free, and volumes become available.

Locks: `lock` guards the view. It is held while a pass computes, never during I/O. The marks have a lock of their own,
which is held briefly. Threads: any, but only the loop calls `take` and `wait`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from tfjob_controller.api.gang import ADMITTED, Gang
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.state.observedrequests import ObservedRequests
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes
from tfjob_controller.util.clock import Clock

# The time after which kube-scheduler retries an unschedulable pod without any event.
REJECTION_SECONDS = 300.0


class RejectedNodes:
    """Nodes that kube-scheduler's filters rejected, by gang and member. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The time of the rejection by gang, member and node.
        self._rejected: dict[str, dict[str, dict[str, float]]] = {}

    def add(self, member: GangMember, node: str) -> bool:
        """Record a rejection. Returns whether it was not known."""
        now = self._clock.monotonic()
        with self._lock:
            nodes = self._rejected.setdefault(member.gang, {}).setdefault(member.name, {})
            is_new = now - nodes.get(node, -REJECTION_SECONDS) >= REJECTION_SECONDS
            if is_new:
                nodes[node] = now
        return is_new

    def by_member(self, gang: str) -> Mapping[str, Collection[str]]:
        """Returns the unexpired rejections of a gang, by member."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._rejected.get(gang, {})
            return {
                member: {node for node, moment in nodes.items() if now - moment < REJECTION_SECONDS}
                for member, nodes in members.items()
            }

    def forget(self, gang: str) -> None:
        with self._lock:
            self._rejected.pop(gang, None)


class SharedState:
    """The view, what is known beyond Gangs and pods, and the marks for the loop."""

    def __init__(self, gangs: Store[Gang], clock: Clock) -> None:
        self.view = ClusterView()
        self.lock = threading.Lock()
        self.observed_requests = ObservedRequests(clock)
        self.rejected_nodes = RejectedNodes(clock)
        # The value is immutable, so it is read without the lock.
        self.nominated: NominatedNodes | None = None
        self._gangs = gangs
        self._clock = clock
        self._changed = threading.Condition()
        self._marked: set[str] = set()
        self._is_capacity_changed = False
        self._rejected_attempts: dict[str, int] = {}

    # Marks, from any thread

    def enqueue(self, gang_key: str) -> None:
        """Mark a gang that changed, or whose pods changed."""
        with self._changed:
            self._marked.add(gang_key)
            self._changed.notify_all()

    def capacity_changed(self) -> None:
        """Wake the loop because a node or pod changed so that a waiting gang may fit."""
        with self._changed:
            self._is_capacity_changed = True
            self._changed.notify_all()

    def node_degraded(self, node: str) -> None:
        """Mark admitted gangs with members on a node that may have become unsuitable."""
        for gang in self._gangs.list():
            if gang.status.phase == ADMITTED and any(each.node == node for each in gang.status.placement):
                self.enqueue(key_of(gang))

    def node_rejected(self, member: GangMember, node: str) -> None:
        """Record that kube-scheduler's filters rejected the member's node."""
        if self.rejected_nodes.add(member, node):
            self.enqueue(member.gang)

    def gang_bound(self, gang: str, attempt: int) -> None:
        """See `permit.AttemptListener`. The pod watch shows which members are bound."""
        self.enqueue(gang)

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        """See `permit.AttemptListener`."""
        with self._changed:
            self._rejected_attempts[gang] = attempt
        self.enqueue(gang)

    # For the loop

    def wait(self, seconds: float) -> None:
        """Wait for a mark or a capacity change, for at most `seconds`."""
        with self._changed:
            if not self._marked and not self._is_capacity_changed:
                self._clock.wait(self._changed, seconds)

    def take(self) -> set[str]:
        """Take all marked gangs."""
        with self._changed:
            marked, self._marked, self._is_capacity_changed = self._marked, set(), False
        return marked

    def is_attempt_rejected(self, gang: Gang) -> bool:
        """Reports whether Permit rejected the gang's current attempt."""
        return self._rejected_attempts.get(key_of(gang)) == gang.status.attempt

    def forget(self, gang_key: str) -> None:
        """Forget a Gang that was deleted or recreated."""
        self.rejected_nodes.forget(gang_key)
        self.observed_requests.forget(gang_key)
        self._rejected_attempts.pop(gang_key, None)
