"""Looks up the admission loop's decisions for the extender's verbs. Implements `verbs.Placements`.

Threads: the server's event loop. A member's node is read from the cached Gang, without the loop's lock. Only pods of no
gang need the view, under its lock, which is held for milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tfjob_controller.api.common.cluster import decode_scheduled_pod
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    GANG_LABEL,
    MEMBER_LABEL,
    Gang,
    GangStatus,
    parse_index,
    placed_nodes,
)
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.extender.verbs import NodeAssignment
from tfjob_controller.gangscheduler.extender.wire import WirePod
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.scheduling.nodeinfo import nodes_without_capacity

NO_GANG = "there is no Gang of the name that the pod's label says"
NOT_ADMITTED = "the gang waits for room"
NOT_A_MEMBER = "the pod is no placed member of its gang"
OLD_ATTEMPT = "the pod is of another attempt of its gang than the present one"
RESERVED = "the room left on this node is reserved for gangs"
UNREADABLE = "the pod cannot be read"

# No attempt has this number; it stands for an invalid label.
_NO_ATTEMPT = -1


class GangPlacements:
    """Implements `verbs.Placements`."""

    def __init__(self, gangs: Store[Gang], state: SharedState, is_synced: Callable[[], bool]) -> None:
        self._gangs = gangs
        self._state = state
        self._is_synced = is_synced
        # The last gang's nodes: kube-scheduler filters a gang's members one after the other.
        self._latest: tuple[GangStatus, dict[str, str]] = (GangStatus(), {})

    @property
    def is_synced(self) -> bool:
        return self._is_synced()

    def member_of(self, pod: WirePod) -> GangMember | None:
        labels = pod.metadata.labels
        name = labels.get(GANG_LABEL, "")
        if not name:
            return None
        attempt = parse_index(labels.get(ATTEMPT_LABEL, ""))
        return GangMember(
            f"{pod.metadata.namespace}/{name}",
            attempt if attempt is not None else _NO_ATTEMPT,
            labels.get(MEMBER_LABEL, ""),
        )

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        gang = self._gangs.get(gang_key)
        if gang is None:
            return NodeAssignment(reason=NO_GANG)
        if gang.status.phase not in (ADMITTED, BOUND):
            return NodeAssignment(reason=NOT_ADMITTED)
        if gang.status.attempt != attempt:
            return NodeAssignment(reason=OLD_ATTEMPT)
        node = self._nodes_of(gang.status).get(member, "")
        return NodeAssignment(node, "" if node else NOT_A_MEMBER)

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        try:
            amounts = tuple(requests_of(decode_scheduled_pod(pod.body)).items())
        except (msgspec.MsgspecError, ValueError):
            return (), dict.fromkeys(names, UNREADABLE)
        with self._state.lock:
            full = nodes_without_capacity(self._state.view.node_infos, names, amounts)
            full |= self._nodes_with_nominated_capacity(amounts).intersection(names)
        if not full:
            return names, {}
        return [name for name in names if name not in full], dict.fromkeys(sorted(full), RESERVED)

    def _nodes_with_nominated_capacity(self, amounts: Sequence[tuple[str, int]]) -> set[str]:
        """Returns nodes without capacity for the pod beside what running gangs free there for a waiting gang."""
        kept, rooms = self._state.nominated, self._state.view.node_infos
        given = {} if kept is None else kept.released
        return {
            node
            for node, taken in given.items()
            if node in rooms
            and any(rooms[node].free.get(name, 0) - taken.get(name, 0) < value for name, value in amounts)
        }

    def _nodes_of(self, status: GangStatus) -> dict[str, str]:
        known, nodes = self._latest
        if known is not status:
            nodes = placed_nodes(status)
            self._latest = (status, nodes)
        return nodes
