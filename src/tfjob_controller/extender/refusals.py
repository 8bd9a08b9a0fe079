"""Which nodes kube-scheduler's own filters have refused for which members of gangs, so that they are placed elsewhere.

A refusal is forgotten after a while: ports are freed and volumes come. Safe to use from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from tfjob_controller.extender.bindcalls import MemberOfGang
from tfjob_controller.util.clock import Clock

# As long as kube-scheduler leaves a pod that fits nowhere alone, if nothing happens that might help it.
REFUSED_SECONDS = 300.0


class Refusals:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By gang, member and node: when.
        self._refused: dict[str, dict[str, dict[str, float]]] = {}

    def note(self, who: MemberOfGang, node: str) -> bool:
        """Whether this is news."""
        now = self._clock.monotonic()
        with self._lock:
            nodes = self._refused.setdefault(who.gang, {}).setdefault(who.member, {})
            is_new = now - nodes.get(node, -REFUSED_SECONDS) >= REFUSED_SECONDS
            if is_new:
                nodes[node] = now
        return is_new

    def of(self, gang: str) -> Mapping[str, Collection[str]]:
        """The nodes that were refused lately, by member."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._refused.get(gang, {})
            return {
                member: {node for node, moment in nodes.items() if now - moment < REFUSED_SECONDS}
                for member, nodes in members.items()
            }

    def forget(self, gang: str) -> None:
        with self._lock:
            self._refused.pop(gang, None)
