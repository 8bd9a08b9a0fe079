"""Reservations of admitted and bound gangs: view and Permit follow the Gangs' statuses and what is known beyond them.

Theory of operation. An admitted or bound gang has a reservation in the view and a place in Permit for each member of
its placement that has not succeeded. Three facts are known here that the status does not show, or does not show yet:

- members that *succeeded*, even after their pods were deleted: their capacity is free for others;
- members that were *reassigned* by a status which was not written yet, or not read back: they keep their new nodes as
  long as the Gang in the cache is the one from which they were reassigned. A failed write is repeated with these nodes;
- members that were *removed* from the gang while their Bindings are in flight: reservation and Permit keep them until
  the Bindings end.

All of it belongs to one attempt and is lost when the process ends; the pods then show what happened.

A member is reassigned if its node was deleted or is unsuitable, if the node has less capacity than is reserved there
(another scheduler bound pods to it), or if kube-scheduler's own filters rejected it: only they know volumes, ports and
pod affinity.

Threads: the admission loop's, under the view's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.podrequests import Amounts
from tfjob_controller.api.gang import ADMITTED, BOUND, Gang, GangSpec, kind_of, placed_nodes, wanted_members
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import SUCCEEDED, is_bound, is_unfinished
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.elasticgang import preferred_nodes
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.placement import MemberNodes
from tfjob_controller.scheduling.podsets import PodSet, requests_by_kind, valid_pod_sets_of
from tfjob_controller.scheduling.quota import NamespaceQuotas

# By member.
Pods = Mapping[str, ScheduledPod]


def reassign_members(
    view: ClusterView, gang: Gang, pods: Mapping[str, ScheduledPod], rejected: Mapping[str, Collection[str]]
) -> tuple[dict[str, str], bool]:
    """Reserve other nodes for unbound members whose nodes became unsuitable.

    Returns the new nodes by member, and whether some members fit on no node. `pods` are the current attempt's, by
    member; `rejected` has the nodes that kube-scheduler rejected, by member.
    """
    pod_sets = {pod_set.name: pod_set for pod_set in valid_pod_sets_of(gang.spec)}
    nodes = placed_nodes(gang.status)
    new_nodes: dict[str, str] = {}
    finders: dict[str, MemberNodes] = {}
    is_any_unplaceable = False
    for member, node in nodes.items():
        pod_set = pod_sets.get(kind_of(member))
        rejected_nodes = rejected.get(member, ())
        if (
            pod_set is None
            or not _is_unbound(gang, pods.get(member))
            or (node not in rejected_nodes and _is_suitable(view, node, pod_set))
        ):
            continue
        if pod_set.name not in finders:
            finders[pod_set.name] = MemberNodes(view, pod_set, nodes.values())
        new_node = finders[pod_set.name].find({node, *rejected_nodes})
        if new_node is None:
            is_any_unplaceable = True
            continue
        view.reserve(key_of(gang), {member: new_node}, requests_by_kind([pod_set]), attempt=gang.status.attempt)
        new_nodes[member] = new_node
        for finder in finders.values():
            finder.refresh(node)
    return new_nodes, is_any_unplaceable


def reserve_resized(
    view: ClusterView, gang: Gang, quotas: NamespaceQuotas, exclude: Collection[str] = ()
) -> dict[str, str]:
    """Returns a bound gang's nodes for its present spec: removed members are omitted, added members are reserved.

    Members are added one by one. A kind of which one member does not fit, or exceeds a quota, waits; the others
    continue. Nodes of the gang's parameter servers are preferred, and nodes in `exclude` are never used.
    """
    placed = placed_nodes(gang.status)
    wanted = wanted_members(gang)
    nodes = {member: placed[member] for member in wanted if member in placed}
    pod_sets = {pod_set.name: pod_set for pod_set in valid_pod_sets_of(gang.spec)}
    finders: dict[str, MemberNodes] = {}
    for member in wanted:
        pod_set = pod_sets.get(kind_of(member))
        if member in placed or pod_set is None:
            continue
        if pod_set.name not in finders:
            nearest = preferred_nodes(placed, pod_set.name)
            finders[pod_set.name] = MemberNodes(view, pod_set, nodes.values(), nearest, exclude)
        node = finders[pod_set.name].find() if quotas.allows(gang, pod_set) else None
        if node is None:
            del pod_sets[pod_set.name]
            continue
        view.reserve(key_of(gang), {member: node}, requests_by_kind([pod_set]), attempt=gang.status.attempt)
        quotas.add(gang, pod_set)
        nodes[member] = node
    return nodes


def _is_unbound(gang: Gang, pod: ScheduledPod | None) -> bool:
    """Reports whether the member is not bound yet. In a bound gang only a member with a pod can be unbound."""
    if pod is None:
        return gang.status.phase == ADMITTED
    return is_unfinished(pod) and not is_bound(pod)


def _is_suitable(view: ClusterView, node: str, pod_set: PodSet) -> bool:
    info = view.node_infos.get(node)
    return (
        info is not None
        and not view.verdicts.rejection(pod_set.node_filter, info.node)
        and all(info.free.get(name, 0) >= 0 for name, _ in pod_set.requests)
    )


@dataclass(slots=True)
class _Reservation:
    """One attempt of a gang. `pod_sets` and `requests` follow from `spec`.

    The Gang at `version` lacks the `reassigned` nodes.
    """

    attempt: int
    spec: GangSpec | None = None
    pod_sets: tuple[PodSet, ...] = ()
    requests: Mapping[str, Amounts] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    version: str = ""
    reassigned: dict[str, str] = field(default_factory=dict)


class Reservations:
    """Keeps reservations and Permit in line with the gangs' statuses."""

    def __init__(self, view: ClusterView, quotas: NamespaceQuotas, permit: Permit) -> None:
        self._view = view
        self._quotas = quotas
        self._permit = permit
        self._by_gang: dict[str, _Reservation] = {}

    def with_reassignments(self, gang: Gang) -> Gang:
        """Returns the gang with the reassignments that its status does not show yet."""
        reservation = self._by_gang.get(key_of(gang))
        if (
            reservation is None
            or reservation.attempt != gang.status.attempt
            or reservation.version != gang.metadata.resource_version
        ):
            return gang
        return (
            replace(gang, status=lifecycle.reassigned_status(gang, reservation.reassigned))
            if reservation.reassigned
            else gang
        )

    def reserve(self, gang: Gang, pods: Pods) -> bool:
        """Reserve the gang's placement. Returns False while removed members are kept: process the gang again soon."""
        key = key_of(gang)
        reservation = self._reservation_of(key, gang.status.attempt)
        _update_succeeded(reservation.succeeded, pods)
        placed = placed_nodes(gang.status)
        wanted = {member: node for member, node in placed.items() if member not in reservation.succeeded}
        removed = self._removed_in_flight(key, wanted, reservation.succeeded, pods)
        wanted |= removed
        self._reserve(key, gang, reservation, wanted)
        self._reserve_quota(gang, reservation, pods)
        was_bound = gang.status.phase == BOUND
        # Until the gang is bound, a member that failed or is deleted counts as bound. Afterwards its place is for a
        # replacement.
        bound = {
            member: pod.metadata.uid
            for member, pod in pods.items()
            if lifecycle.is_bound(pod) and (lifecycle.keeps_place(pod) or not was_bound)
        }
        self._permit.set_placement(key, gang.status.attempt, wanted, bound=bound, was_bound=was_bound)
        return not removed

    def reassign(
        self, gang: Gang, pods: Pods, rejected: Mapping[str, Collection[str]], version: str
    ) -> tuple[Mapping[str, str], bool]:
        """Reassign members whose nodes became unsuitable; the new nodes are reserved, and kept until they are written.

        Returns the new nodes by member, and whether some members fit on no node. `version` is the resourceVersion of
        the Gang to which the status will be written.
        """
        key = key_of(gang)
        nodes, is_any_unplaceable = reassign_members(self._view, gang, pods, rejected)
        if not nodes:
            return nodes, is_any_unplaceable
        reassigned = self._permit.reassign(key, nodes)
        self._restore(gang, nodes.keys() - reassigned)
        nodes = {member: node for member, node in nodes.items() if member in reassigned}
        reservation = self._reservation_of(key, gang.status.attempt)
        if reservation.version != version:
            reservation.version, reservation.reassigned = version, {}
        reservation.reassigned |= nodes
        return nodes, is_any_unplaceable

    def has_succeeded(self, gang: Gang) -> bool:
        """Reports whether a member of the current attempt was seen to succeed, even if its pod is deleted."""
        reservation = self._by_gang.get(key_of(gang))
        return reservation is not None and reservation.attempt == gang.status.attempt and bool(reservation.succeeded)

    def unreserve(self, key: str) -> None:
        """Release everything of a gang that is not placed any more. No Binding may be in flight: `Permit.reject`."""
        self._by_gang.pop(key, None)
        self._view.unreserve(key)
        self._quotas.unreserve(key)
        self._permit.forget(key)

    def _reservation_of(self, key: str, attempt: int) -> _Reservation:
        reservation = self._by_gang.get(key)
        if reservation is None or reservation.attempt != attempt:
            reservation = self._by_gang[key] = _Reservation(attempt)
        return reservation

    def _removed_in_flight(
        self, key: str, wanted: Mapping[str, str], succeeded: Collection[str], pods: Pods
    ) -> dict[str, str]:
        """Returns removed members, with their nodes, whose Bindings are in flight or not in the cache yet."""
        reserved = self._view.reserved_members(key)
        removed = {member: reserved[member] for member in reserved.keys() - wanted.keys() if member not in succeeded}
        if not removed:
            return {}
        unbound = self._permit.reassign(key, removed)
        return {
            member: node
            for member, node in removed.items()
            if member not in unbound and not lifecycle.is_bound_member(pods, member)
        }

    def _reserve(self, key: str, gang: Gang, reservation: _Reservation, wanted: Mapping[str, str]) -> None:
        reserved = self._view.reserved_members(key)
        for member in reserved.keys() - wanted.keys():
            self._view.unreserve_member(key, member)
        before, requests = reservation.requests, self._requests(reservation, gang)
        # Reserve all of them again if their requests changed or the attempt is another one.
        is_same = before == requests
        missing = {member: node for member, node in wanted.items() if not is_same or reserved.get(member) != node}
        if missing:
            self._view.reserve(key, missing, requests, attempt=gang.status.attempt)

    def _reserve_quota(self, gang: Gang, reservation: _Reservation, pods: Pods) -> None:
        """Reserve quota for the members without an unfinished pod: the API server counts the others as used."""
        reserved = self._view.reserved_members(key_of(gang))
        missing = Counter(
            kind_of(member) for member in reserved if member not in pods or not is_unfinished(pods[member])
        )
        self._quotas.reserve(gang, reservation.pod_sets, missing)

    def _restore(self, gang: Gang, members: Iterable[str]) -> None:
        """Reserve the members' previous nodes again, because their Bindings are in flight."""
        placed = placed_nodes(gang.status)
        own = {member: placed[member] for member in members if member in placed}
        if own:
            requests = self._requests(self._reservation_of(key_of(gang), gang.status.attempt), gang)
            self._view.reserve(key_of(gang), own, requests, attempt=gang.status.attempt)

    def _requests(self, reservation: _Reservation, gang: Gang) -> Mapping[str, Amounts]:
        if reservation.spec is not gang.spec:
            reservation.spec, reservation.pod_sets = gang.spec, valid_pod_sets_of(gang.spec)
            reservation.requests = requests_by_kind(reservation.pod_sets)
        return reservation.requests


def _update_succeeded(succeeded: set[str], pods: Pods) -> None:
    """Update the set of succeeded members. A member with a newer, unfinished pod runs again."""
    for member, pod in pods.items():
        (succeeded.add if pod.status.phase == SUCCEEDED else succeeded.discard)(member)
