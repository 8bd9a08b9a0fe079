"""Short constructors of nodes, pods, gangs and views for tests of scheduling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tfjob_controller.api.common.cluster import (
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ScheduledPod,
    ScheduledPodSpec,
    ScheduledPodStatus,
    Taint,
)
from tfjob_controller.api.common.quantity import amount_from
from tfjob_controller.api.gang import (
    ATTEMPT_LABEL,
    GANG_LABEL,
    MEMBER_LABEL,
    Gang,
    GangMeta,
    GangSpec,
    GangStatus,
    Member,
)
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import AdmissionDecider, AdmissionPolicy, Decision, NominatedNodes

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_node(
    name: str,
    cpu: str = "8",
    *,
    gpu: str = "",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    ready: str = "True",
    unschedulable: bool = False,
) -> Node:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": pods} | ({GPU: gpu} if gpu else {})
    conditions = (NodeCondition("Ready", ready),) if ready else ()
    return Node(
        ObjectMeta(name=name, labels=dict(labels or {})),
        NodeSpec(unschedulable, taints),
        NodeStatus(allocatable, conditions),
    )


def a_pod(
    name: str,
    node: str = "",
    cpu: str = "1",
    *,
    gang: str = "",
    member: str = "",
    attempt: int = 1,
    phase: str = "Running",
) -> ScheduledPod:
    labels = {GANG_LABEL: gang, MEMBER_LABEL: member, ATTEMPT_LABEL: str(attempt)} if gang else {}
    metadata = ObjectMeta(name=name, namespace="ns", labels=labels)
    requests = {"cpu": amount_from("cpu", cpu), "pods": 1}
    return ScheduledPod(metadata, ScheduledPodSpec(node), ScheduledPodStatus(phase), requests)


def workers(count: int, cpu: str = "1", name: str = "worker", **more: Any) -> Member:
    resources = {"cpu": cpu} | more.pop("resources", {})
    return Member(name, count, resources, **more)


def a_gang(
    name: str, *members: Member, age_seconds: float = 0.0, status: GangStatus | None = None, **spec: Any
) -> Gang:
    created = (NOW - timedelta(seconds=age_seconds)).isoformat()
    return Gang(
        GangMeta(name=name, namespace="ns", creation_timestamp=created),
        GangSpec(members=members or (workers(1),), **spec),
        status or GangStatus(),
    )


def a_view(*nodes: Node) -> ClusterView:
    view = ClusterView()
    for node in nodes:
        view.set_node(node)
    return view


def decide_once(
    view: ClusterView,
    gangs: Iterable[Gang],
    now: datetime,
    policy: AdmissionPolicy,
    nominated: NominatedNodes | None = None,
) -> list[Decision]:
    """Returns the decisions of one scheduling cycle of a new decider."""
    return AdmissionDecider(view, policy).decide(gangs, now, nominated)


def member_ids(spec: GangSpec) -> tuple[str, ...]:
    """Returns the names of all pods of a gang without a placement, in the spec's order."""
    return tuple(f"{member.name}-{index}" for member in spec.members for index in range(member.count))
