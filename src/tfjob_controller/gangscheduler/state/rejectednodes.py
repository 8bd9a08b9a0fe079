"""Which nodes kube-scheduler's own filters rejected for which members, so that these are placed elsewhere.

A rejection expires: ports become free, and volumes become available. Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from tfjob_controller.gangscheduler.bindrequests import GangMember
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
