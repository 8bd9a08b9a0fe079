"""The assignment of a replica to a member and a node in an attempt of its gang, and its effect on pods."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL, Gang, Member, wanted_members
from tfjob_controller.trainer.naming import replica_id

# On pinned children: a hash of the node's name, which may be too long for a label value.
NODE_LABEL = "scheduling.kubeflow.org/pinned-to"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """`node` is set if the pod is pinned to it; otherwise the scheduler `scheduler_name` assigns the node."""

    gang: str
    member: str
    attempt: int
    scheduler_name: str = ""
    node: str = ""

    @property
    def labels(self) -> dict[str, str]:
        pinned = {NODE_LABEL: node_value(self.node)} if self.node else {}
        return {GANG_LABEL: self.gang, MEMBER_LABEL: self.member, ATTEMPT_LABEL: str(self.attempt), **pinned}


def wanted_role_members(gang: Gang | None, role: str, count: int) -> tuple[str, ...]:
    """The members of a role with `count` members, by index. `gang` is None while there is no placement."""
    if gang is None:
        return tuple(replica_id(role, index) for index in range(count))
    return wanted_members(replace(gang, spec=replace(gang.spec, members=(Member(role, count),))))


def node_value(node: str) -> str:
    """The hash of a node's name, for a label."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def apply_assignment(pod_spec: dict[str, Any], assignment: MemberAssignment) -> None:
    """Changes a pod spec in place, so that the pod runs as assigned."""
    if assignment.scheduler_name:
        pod_spec["schedulerName"] = assignment.scheduler_name
    if assignment.node:
        pod_spec["affinity"] = _pinned(pod_spec.get("affinity") or {}, assignment.node)


def _pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """Adds the node to each of the user's terms, of which one has to match."""
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": pinned}}}
