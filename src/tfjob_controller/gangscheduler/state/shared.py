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
from tfjob_controller.scheduling.queue import NominatedNodes
from tfjob_controller.util.clock import Clock

# As long as kube-scheduler leaves a pod that fits nowhere alone, if nothing happens that might help it.
REJECTION_SECONDS = 300.0


class RejectedNodes:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By gang, member and node: when.
        self._refused: dict[str, dict[str, dict[str, float]]] = {}

    def note(self, who: GangMember, node: str) -> bool:
        """Whether this is news."""
        now = self._clock.monotonic()
        with self._lock:
            nodes = self._refused.setdefault(who.gang, {}).setdefault(who.member, {})
            is_new = now - nodes.get(node, -REJECTION_SECONDS) >= REJECTION_SECONDS
            if is_new:
                nodes[node] = now
        return is_new

    def of(self, gang: str) -> Mapping[str, Collection[str]]:
        """The nodes that were refused lately, by member."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._refused.get(gang, {})
            return {
                member: {node for node, moment in nodes.items() if now - moment < REJECTION_SECONDS}
                for member, nodes in members.items()
            }

    def forget(self, gang: str) -> None:
        with self._lock:
            self._refused.pop(gang, None)


class SharedState:
    """See the module."""

    def __init__(self, gangs: Store[Gang], clock: Clock) -> None:
        self.view = ClusterView()
        self.lock = threading.Lock()
        self.observed_requests = ObservedRequests(clock)
        self.rejected_nodes = RejectedNodes(clock)
        # Read without the lock: what is kept for a gang that waits is a value.
        self.kept: NominatedNodes | None = None
        self._gangs = gangs
        self._clock = clock
        self._changed = threading.Condition()
        self._dirty: set[str] = set()
        self._room_changed = False
        self._rejected_attempts: dict[str, int] = {}

    # What is told

    def enqueue(self, gang_key: str) -> None:
        """Something about this gang, or its pods, has changed."""
        with self._changed:
            self._dirty.add(gang_key)
            self._changed.notify_all()

    def capacity_changed(self) -> None:
        """A node or pod has changed in a way that may let somebody start."""
        with self._changed:
            self._room_changed = True
            self._changed.notify_all()

    def node_degraded(self, node: str) -> None:
        """A node may not be good any more for those who are to come to it."""
        for gang in self._gangs.list():
            if gang.status.phase == ADMITTED and any(each.node == node for each in gang.status.placement):
                self.enqueue(key_of(gang))

    def node_rejected(self, who: GangMember, node: str) -> None:
        """See `service.Refusals`."""
        if self.rejected_nodes.note(who, node):
            self.enqueue(who.gang)

    def gang_bound(self, gang: str, attempt: int) -> None:
        """See `permit.Listener`. The pods' own watch says who is bound."""
        self.enqueue(gang)

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        """See `permit.Listener`."""
        with self._changed:
            self._rejected_attempts[gang] = attempt
        self.enqueue(gang)

    # What the loop asks

    def wait(self, seconds: float) -> None:
        """Until something is told, for so long at most."""
        with self._changed:
            if not self._dirty and not self._room_changed:
                self._clock.wait(self._changed, seconds)

    def take(self) -> set[str]:
        """The gangs to look at: all of which something was told since the last time."""
        with self._changed:
            dirty, self._dirty, self._room_changed = self._dirty, set(), False
        return dirty

    def is_attempt_rejected(self, gang: Gang) -> bool:
        """Whether the gate has given the gang's present attempt up."""
        return self._rejected_attempts.get(key_of(gang)) == gang.status.attempt

    def forget(self, gang_key: str) -> None:
        """The Gang is gone, or is another one by now."""
        self.rejected_nodes.forget(gang_key)
        self.observed_requests.forget(gang_key)
        self._rejected_attempts.pop(gang_key, None)
