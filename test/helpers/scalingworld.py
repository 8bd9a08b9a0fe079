"""A cluster of gangs for tests of the autoscaling rules: resizes take effect at once, without pods and owners.

Tests run one step after the other, on a clock that only they move: `plan` calls the rules, `follow` carries out their
requests, `admit` decides on the queue, `round` does all three. Gangs are as the gang scheduler would write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from helpers.gangs import NOW, a_gang
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.gang import (
    BOUND,
    Gang,
    GangStatus,
    Member,
    NodePlacement,
    kind_of,
    placed_nodes,
    wanted_members,
)
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.autoscaler import plan_resizes
from tfjob_controller.scheduling.autoscaling.elasticgang import (
    AutoscalingPolicy,
    ElasticGang,
    ResizePlan,
    ResizeRequest,
    elastic_gang_of,
)
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    NominatedNodes,
    QueuedGang,
    queue_order,
)
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import find_member_node, placement_by_node
from tfjob_controller.scheduling.podsets import pod_sets_of, requests_by_kind

SCALE = AutoscalingPolicy(scale_down_after_seconds=30.0, scale_up_after_seconds=60.0)


class ScalingWorld:
    """See the module."""

    def __init__(self, *nodes: Node, scale: AutoscalingPolicy = SCALE) -> None:
        self.view = ClusterView()
        for node in nodes:
            self.view.set_node(node)
        self.now = NOW
        self.scale = scale
        self.running: dict[str, Gang] = {}
        self.waiting: dict[str, Gang] = {}
        self.ending: list[FreedCapacity] = []
        self.waited_at: datetime | None = None
        self.nominated: NominatedNodes | None = None
        self.resizes = 0
        self._decider = AdmissionDecider(self.view, AdmissionPolicy())

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def arrives(self, name: str, *members: Member, **spec: Any) -> None:
        """The gang waits from now on."""
        gang = a_gang(name, *members, status=GangStatus(queued_time=self.now.isoformat()), **spec)
        self.waiting[key_of(gang)] = gang

    def runs(self, name: str, nodes: Sequence[tuple[str, Iterable[str]]], *members: Member, **spec: Any) -> None:
        """The gang is bound, with these members on each of these nodes.

        Fields such as `last_resize_time` are of its status.
        """
        own = {"bound_time", "last_resize_time", "target_members", "leaving", "target_reason"}
        said = {name: spec.pop(name) for name in own & spec.keys()}
        placement = tuple(NodePlacement(node, tuple(some)) for node, some in nodes)
        gang = a_gang(name, *members, status=GangStatus(phase=BOUND, attempt=1, placement=placement, **said), **spec)
        self.running[key_of(gang)] = gang
        self._reserve(gang, placed_nodes(gang.status))

    def ends(self, name: str) -> None:
        key = f"ns/{name}"
        del self.running[key]
        self.view.unreserve(key)

    def elastic(self) -> list[ElasticGang]:
        return [each for gang in self.running.values() if (each := elastic_gang_of(gang)) is not None]

    def queue(self) -> list[QueuedGang]:
        return queue_order(self.waiting.values())

    def plan(self) -> ResizePlan:
        """Returns the resize requests that the rules make now; earlier ones are withdrawn."""
        plan = plan_resizes(
            self.view, self.queue(), self.elastic(), self.now, self.scale, freed=self.ending, waited_at=self.waited_at
        )
        wishes = {each.key: each for each in plan.resizes}
        for key, gang in self.running.items():
            self.running[key] = replace(gang, status=_wished(gang.status, wishes.get(key)))
        self.nominated = plan.nominated
        return plan

    def follow(self, resizes: Iterable[ResizeRequest]) -> None:
        """The owners follow all requests, and pods are created and deleted at once."""
        for each in resizes:
            self.resizes += 1
            self._set_count(each.key, each.kind, each.target)

    def scale_to(self, name: str, count: int) -> None:
        """Another client scales the gang."""
        self._set_count(f"ns/{name}", "worker", count)

    def admit(self) -> list[str]:
        """Returns the gangs that start now."""
        admitted = [
            each
            for each in self._decider.decide(list(self.waiting.values()), self.now, self.nominated)
            if isinstance(each, Admit)
        ]
        for each in admitted:
            gang = self.waiting.pop(each.gang_key)
            self.waited_at = self.now
            status = GangStatus(
                phase=BOUND,
                attempt=each.attempt,
                placement=placement_by_node(each.placement.node_of),
                queued_time=gang.status.queued_time,
                bound_time=self.now.isoformat(),
            )
            self.running[each.gang_key] = replace(gang, status=status)
        return [each.gang_key for each in admitted]

    def round(self) -> tuple[ResizePlan, list[str]]:
        plan = self.plan()
        self.follow(plan.resizes)
        return plan, self.admit()

    def size(self, name: str) -> int:
        """Returns the number of workers that have a node."""
        return sum(1 for member in placed_nodes(self.running[f"ns/{name}"].status) if kind_of(member) == "worker")

    def _set_count(self, key: str, kind: str, count: int) -> None:
        gang = self.running[key]
        members = tuple(replace(each, count=count) if each.name == kind else each for each in gang.spec.members)
        gang = replace(gang, spec=replace(gang.spec, members=members))
        before, wanted = placed_nodes(gang.status), wanted_members(gang)
        after = {member: before[member] for member in wanted if member in before}
        for member in before.keys() - after.keys():
            self.view.unreserve_member(key, member)
        pod_sets = {each.name: each for each in pod_sets_of(gang.spec)}
        for member in wanted:
            if member not in after:
                node = find_member_node(self.view, pod_sets[kind_of(member)], near=set(after.values()))
                if node is not None:
                    after[member] = node
                    self._reserve(gang, {member: node})
        placement = tuple(NodePlacement(node, (member,)) for member, node in after.items())
        status = _wished(gang.status, None)
        moment = self.now.isoformat() if after.keys() != before.keys() else status.last_resize_time
        self.running[key] = replace(gang, status=replace(status, placement=placement, last_resize_time=moment))

    def _reserve(self, gang: Gang, nodes: dict[str, str]) -> None:
        requests = requests_by_kind(pod_sets_of(gang.spec))
        self.view.reserve(key_of(gang), nodes, requests, attempt=gang.status.attempt)


def _wished(status: GangStatus, wish: ResizeRequest | None) -> GangStatus:
    if wish is None:
        return replace(status, target_members={}, leaving=(), target_reason="")
    return replace(status, target_members={wish.kind: wish.target}, leaving=wish.leaving, target_reason=wish.reason)


def elastic(least: int, most: int) -> dict[str, dict[str, int]]:
    """Returns the part of a Gang's spec with the minimum and the maximum of its workers."""
    return {"min_members": {"worker": least}, "max_members": {"worker": most}}
