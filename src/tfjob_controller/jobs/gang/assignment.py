"""The assignment of a replica to a member of its gang: labels, and the node that its pod is pinned to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfjob_controller.api.gang import (
    ATTEMPT_LABEL,
    GANG_LABEL,
    MEMBER_KIND_LABEL,
    MEMBER_LABEL,
    PLACEMENT_GATE,
    REQUIRED_NODE_AFFINITY,
    Gang,
    Member,
    required_on_node,
    wanted_members,
)
from tfjob_controller.jobs.naming import replica_id

# On pinned children: a hash of the node's name, which may be too long for a label value.
NODE_LABEL = "scheduling.kubeflow.org/pinned-to"


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """`node` is set if the pod is pinned to it; otherwise the scheduler `scheduler_name` assigns the node.

    `annotations` name the ProvisioningRequest that has provided the nodes of the attempt, if any.
    """

    gang: str
    member: str
    attempt: int
    scheduler_name: str = ""
    node: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        pinned = {NODE_LABEL: node_value(self.node)} if self.node else {}
        return {GANG_LABEL: self.gang, MEMBER_LABEL: self.member, ATTEMPT_LABEL: str(self.attempt), **pinned}


def indexed_job_labels(assignment: MemberAssignment, kind: str) -> dict[str, str]:
    """Returns the labels of the Indexed Job that runs all members of a kind, identified by their completion indexes."""
    return {GANG_LABEL: assignment.gang, MEMBER_KIND_LABEL: kind, ATTEMPT_LABEL: str(assignment.attempt)}


def apply_to_indexed_job(template: dict[str, Any], assignment: MemberAssignment) -> None:
    """Changes the pod template of an Indexed Job in place.

    One template cannot pin its pods to different nodes. If pods are pinned, each waits behind a scheduling gate until
    the gang scheduler has pinned it.
    """
    pod_spec = _assigned_spec(template, assignment)
    if assignment.node:
        gates = [gate for gate in pod_spec.get("schedulingGates") or () if gate.get("name") != PLACEMENT_GATE]
        pod_spec["schedulingGates"] = [*gates, {"name": PLACEMENT_GATE}]


def wanted_role_members(gang: Gang | None, role: str, count: int) -> tuple[str, ...]:
    """Returns the members of a role with `count` members, by index. `gang` is None while there is no placement."""
    if gang is None:
        return tuple(replica_id(role, index) for index in range(count))
    own = next((member for member in gang.spec.members if member.name == role), Member(role, count))
    spec = msgspec.structs.replace(gang.spec, members=(msgspec.structs.replace(own, count=count),))
    return wanted_members(msgspec.structs.replace(gang, spec=spec))


def node_value(node: str) -> str:
    """Returns the hash of a node's name, for a label."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def apply_assignment(template: dict[str, Any], assignment: MemberAssignment) -> None:
    """Changes a pod template in place, so that the pod runs as assigned."""
    pod_spec = _assigned_spec(template, assignment)
    if assignment.node:
        pod_spec["affinity"] = _pinned(pod_spec.get("affinity") or {}, assignment.node)


def _assigned_spec(template: dict[str, Any], assignment: MemberAssignment) -> dict[str, Any]:
    """Returns the pod spec of a template, which gets the annotations and the scheduler of all members."""
    metadata: dict[str, Any] = template["metadata"]
    pod_spec: dict[str, Any] = template["spec"]
    if assignment.annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **assignment.annotations}
    if assignment.scheduler_name:
        pod_spec["schedulerName"] = assignment.scheduler_name
    return pod_spec


def _pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    of_nodes = affinity.get("nodeAffinity") or {}
    required = required_on_node(of_nodes.get(REQUIRED_NODE_AFFINITY), node)
    return {**affinity, "nodeAffinity": {**of_nodes, REQUIRED_NODE_AFFINITY: required}}
