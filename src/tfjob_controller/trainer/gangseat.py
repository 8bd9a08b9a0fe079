"""One replica's place in an attempt of its gang, and what that makes of its pods."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL, Gang, Member, wanted_members
from tfjob_controller.trainer.naming import replica_id

# On children that are pinned: which node, as a label value can say it (a node's name may be longer than one).
NODE_LABEL = "scheduling.kubeflow.org/pinned-to"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Seat:
    """`node` is where the pod must run, empty where the scheduler sees to that; then `scheduler_name` says which."""

    gang: str
    member: str
    attempt: int
    scheduler_name: str = ""
    node: str = ""

    @property
    def labels(self) -> dict[str, str]:
        pinned = {NODE_LABEL: node_value(self.node)} if self.node else {}
        return {GANG_LABEL: self.gang, MEMBER_LABEL: self.member, ATTEMPT_LABEL: str(self.attempt), **pinned}


def wanted_seats(gang: Gang | None, role: str, count: int) -> tuple[str, ...]:
    """Which seats a role has if it has so many, by index: `gang` is None while there is no placement."""
    if gang is None:
        return tuple(replica_id(role, index) for index in range(count))
    return wanted_members(replace(gang, spec=replace(gang.spec, members=(Member(role, count),))))


def node_value(node: str) -> str:
    """A node's name as a label value."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def take_seat(pod_spec: dict[str, Any], seat: Seat) -> None:
    """Change a pod's spec that is the caller's own, so that the pod takes that seat."""
    if seat.scheduler_name:
        pod_spec["schedulerName"] = seat.scheduler_name
    if seat.node:
        pod_spec["affinity"] = _pinned(pod_spec.get("affinity") or {}, seat.node)


def _pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """Each of the user's terms, any of which would do, and the node besides."""
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": pinned}}}
