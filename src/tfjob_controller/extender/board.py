"""What the gang scheduler's threads share: what is known of the cluster, and what the admission loop is to look at.

Theory of operation. The informers' handlers keep the view up to date. Whoever learns of something that may change what
a gang is told says so here, and goes on; the loop takes all of it at once (`take`). So others know this board, and none
of them knows the loop: the way of a gang leads from here to the loop (admission.py), from there to the gate and on to
the binder, and back again only by what is told here.

Locks: `lock` guards the view. It is held for a pass of pure computing, never for I/O. What is told has a lock of its
own, held for a moment. Threads: any; but `take` and `wait` are the loop's.
"""

from __future__ import annotations

import threading

from tfjob_controller.api.gang import ADMITTED, Gang
from tfjob_controller.extender.bindcalls import MemberOfGang
from tfjob_controller.extender.podneeds import PodNeeds
from tfjob_controller.extender.refusals import Refusals
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.resizes import Kept
from tfjob_controller.scheduling.view import ClusterView
from tfjob_controller.util.clock import Clock


class Board:
    """See the module."""

    def __init__(self, gangs: Store[Gang], clock: Clock) -> None:
        self.view = ClusterView()
        self.lock = threading.Lock()
        self.needs = PodNeeds(clock)
        self.refusals = Refusals(clock)
        # Read without the lock: what is kept for a gang that waits is a value.
        self.kept: Kept | None = None
        self._gangs = gangs
        self._clock = clock
        self._changed = threading.Condition()
        self._dirty: set[str] = set()
        self._room_changed = False
        self._given_up: dict[str, int] = {}

    # What is told

    def look_at(self, gang_key: str) -> None:
        """Something about this gang, or its pods, has changed."""
        with self._changed:
            self._dirty.add(gang_key)
            self._changed.notify_all()

    def room_changed(self) -> None:
        """A node or pod has changed in a way that may let somebody start."""
        with self._changed:
            self._room_changed = True
            self._changed.notify_all()

    def node_worsened(self, node: str) -> None:
        """A node may not be good any more for those who are to come to it."""
        for gang in self._gangs.list():
            if gang.status.phase == ADMITTED and any(each.node == node for each in gang.status.placement):
                self.look_at(key_of(gang))

    def node_refused(self, who: MemberOfGang, node: str) -> None:
        """See `service.Refusals`."""
        if self.refusals.note(who, node):
            self.look_at(who.gang)

    def gang_bound(self, gang: str, attempt: int) -> None:
        """See `gate.Listener`. The pods' own watch says who is bound."""
        self.look_at(gang)

    def gang_given_up(self, gang: str, attempt: int) -> None:
        """See `gate.Listener`."""
        with self._changed:
            self._given_up[gang] = attempt
        self.look_at(gang)

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

    def was_given_up(self, gang: Gang) -> bool:
        """Whether the gate has given the gang's present attempt up."""
        return self._given_up.get(key_of(gang)) == gang.status.attempt

    def forget(self, gang_key: str) -> None:
        """The Gang is gone, or is another one by now."""
        self.refusals.forget(gang_key)
        self.needs.forget(gang_key)
        self._given_up.pop(gang_key, None)
