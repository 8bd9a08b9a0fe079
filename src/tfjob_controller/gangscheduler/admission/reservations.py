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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, BOUND, Gang, GangSpec, kind_of, placed_nodes, wanted_members
from tfjob_controller.api.podrequests import Amounts
from tfjob_controller.gangscheduler.status import lifecycle
from tfjob_controller.gangscheduler.status.lifecycle import SUCCEEDED, is_bound, is_unfinished
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.autoscaling.elasticgang import preferred_nodes
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.placement import find_member_node
from tfjob_controller.scheduling.podsets import PodSet, requests_by_kind, valid_pod_sets_of


def reassign_members(
    view: ClusterView, gang: Gang, pods: Mapping[str, ScheduledPod], refused: Mapping[str, Collection[str]]
) -> tuple[dict[str, str], bool]:
    """New nodes by member, reserved; only of members that are still to come, and for which there is room elsewhere.

    Also whether there are some for which there is none.

    `pods` are those of the current attempt, by member; `refused` the nodes that kube-scheduler refused for a member.
    """
    demands = {each.name: each for each in valid_pod_sets_of(gang.spec)}
    nodes = placed_nodes(gang.status)
    found: dict[str, str] = {}
    near = set(nodes.values())
    # Kinds of which no node at all takes one more: thousands of members need not each find that out.
    hopeless: set[str] = set()
    is_any_left = False
    for member, node in nodes.items():
        demand = demands.get(kind_of(member))
        bad = refused.get(member, ())
        if (
            demand is None
            or not _is_awaited(gang, pods.get(member))
            or (node not in bad and _is_good(view, node, demand))
        ):
            continue
        other = None
        if demand.name not in hopeless:
            other = find_member_node(view, demand, {node, *bad}, near)
        if other is None:
            is_any_left = True
            if demand.name not in hopeless and find_member_node(view, demand) is None:
                hopeless.add(demand.name)
        else:
            view.reserve(key_of(gang), {member: other}, requests_by_kind([demand]), attempt=gang.status.attempt)
            found[member] = other
    return found, is_any_left


def reserve_resized(view: ClusterView, gang: Gang, exclude: Collection[str] = ()) -> dict[str, str]:
    """The nodes of a bound gang as its spec is now: members that went are left out, new ones placed where they fit.

    One by one: a kind of which one does not fit waits, and the others go on. New ones are reserved; they come to its
    parameter servers if they can, and never to the nodes that are to `exclude`.
    """
    placed = placed_nodes(gang.status)
    wanted = wanted_members(gang)
    nodes = {member: placed[member] for member in wanted if member in placed}
    demands = {each.name: each for each in valid_pod_sets_of(gang.spec)}
    for member in wanted:
        demand = demands.get(kind_of(member))
        if member in placed or demand is None:
            continue
        anchors = preferred_nodes(placed, demand.name)
        node = find_member_node(view, demand, exclude, near=set(nodes.values()), nearest=anchors)
        if node is None:
            del demands[demand.name]
            continue
        view.reserve(key_of(gang), {member: node}, requests_by_kind([demand]), attempt=gang.status.attempt)
        nodes[member] = node
    return nodes


def _is_awaited(gang: Gang, pod: ScheduledPod | None) -> bool:
    """Whether the member is still to come to its node; in a bound gang only one whose pod is there is."""
    if pod is None:
        return gang.status.phase == ADMITTED
    return is_unfinished(pod) and not is_bound(pod)


def _is_good(view: ClusterView, node: str, demand: PodSet) -> bool:
    room = view.node_infos.get(node)
    return (
        room is not None
        and not demand.node_filter.rejection(room.node)
        and all(room.free.get(name, 0) >= 0 for name, _ in demand.requests)
    )


Pods = Mapping[str, ScheduledPod]


class AttemptPermit(Protocol):
    """What the loop tells the bind calls' side: `gangscheduler.permit.permit.Permit`."""

    def set_placement(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> None: ...

    def forget(self, gang: str) -> None: ...
    def reject(self, gang: str) -> bool: ...
    def reassign(self, gang: str, nodes: Mapping[str, str]) -> set[str]: ...


@dataclass(slots=True)
class _Reservation:
    """One attempt of one gang. `requests` follow from `spec`; `moved` are nodes that the Gang of `version` lacks."""

    attempt: int
    spec: GangSpec | None = None
    requests: Mapping[str, Amounts] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    version: str = ""
    reassigned: dict[str, str] = field(default_factory=dict)


class Reservations:
    """See the module."""

    def __init__(self, view: ClusterView, permit: AttemptPermit) -> None:
        self._view = view
        self._permit = permit
        self._by_gang: dict[str, _Reservation] = {}

    def with_reassignments(self, gang: Gang) -> Gang:
        """The gang with the nodes that it was given since it was written."""
        reservation = self._by_gang.get(key_of(gang))
        if (
            reservation is None
            or reservation.attempt != gang.status.attempt
            or reservation.version != gang.metadata.resource_version
        ):
            return gang
        return (
            lifecycle.with_status(gang, lifecycle.reassigned_status(gang, reservation.reassigned))
            if reservation.reassigned
            else gang
        )

    def reserve(self, gang: Gang, pods: Pods) -> bool:
        """Room and seats as the gang's status says. False while members that went are kept: look again soon."""
        key = key_of(gang)
        reservation = self._of(key, gang.status.attempt)
        _note_succeeded(reservation.succeeded, pods)
        placed = placed_nodes(gang.status)
        wanted = {member: node for member, node in placed.items() if member not in reservation.succeeded}
        leaving = self._still_to_be_bound(key, wanted, reservation.succeeded, pods)
        wanted |= leaving
        self._reserve(key, gang, reservation, wanted)
        was_bound = gang.status.phase == BOUND
        # One that has failed since counts as bound until all have been: later its seat is for a replacement.
        bound = {
            member: pod.metadata.uid
            for member, pod in pods.items()
            if lifecycle.is_bound(pod) and (lifecycle.is_unfinished(pod) or not was_bound)
        }
        self._permit.set_placement(key, gang.status.attempt, wanted, bound=bound, was_bound=was_bound)
        return not leaving

    def reassign(
        self, gang: Gang, pods: Pods, refused: Mapping[str, Collection[str]], version: str
    ) -> tuple[Mapping[str, str], bool]:
        """Other nodes for members whose own are not good any more; reserved, and known here until they are written.

        Also whether there are members for whom there is no other. `version` is that of the Gang which the status is to
        be written to.
        """
        key = key_of(gang)
        found, is_any_left = reassign_members(self._view, gang, pods, refused)
        if not found:
            return found, is_any_left
        moved = self._permit.reassign(key, found)
        self._keep(gang, found.keys() - moved)
        found = {member: node for member, node in found.items() if member in moved}
        reservation = self._of(key, gang.status.attempt)
        if reservation.version != version:
            reservation.version, reservation.reassigned = version, {}
        reservation.reassigned |= found
        return found, is_any_left

    def has_succeeded(self, gang: Gang) -> bool:
        """Whether some member of the present attempt has, as far as was seen; its pod may be gone."""
        reservation = self._by_gang.get(key_of(gang))
        return reservation is not None and reservation.attempt == gang.status.attempt and bool(reservation.succeeded)

    def unreserve(self, key: str) -> None:
        """The gang is not placed any more. Bindings under way must have ended: `Gate.wind_up`."""
        self._by_gang.pop(key, None)
        self._view.unreserve(key)
        self._permit.forget(key)

    def _of(self, key: str, attempt: int) -> _Reservation:
        reservation = self._by_gang.get(key)
        if reservation is None or reservation.attempt != attempt:
            reservation = self._by_gang[key] = _Reservation(attempt)
        return reservation

    def _still_to_be_bound(
        self, key: str, wanted: Mapping[str, str], succeeded: Collection[str], pods: Pods
    ) -> dict[str, str]:
        """Of the members that have room but are wanted no more: those whose Bindings are under way, or not seen yet."""
        reserved = self._view.reserved_members(key)
        gone = {member: reserved[member] for member in reserved.keys() - wanted.keys() if member not in succeeded}
        if not gone:
            return {}
        unbound = self._permit.reassign(key, gone)
        return {
            member: node
            for member, node in gone.items()
            if member not in unbound and not lifecycle.is_bound_member(pods, member)
        }

    def _reserve(self, key: str, gang: Gang, reservation: _Reservation, wanted: Mapping[str, str]) -> None:
        reserved = self._view.reserved_members(key)
        for member in reserved.keys() - wanted.keys():
            self._view.unreserve_member(key, member)
        before, requests = reservation.requests, self._requests(reservation, gang)
        # All anew if they need more than was thought, or belong to another attempt.
        is_same = before == requests
        missing = {member: node for member, node in wanted.items() if not is_same or reserved.get(member) != node}
        if missing:
            self._view.reserve(key, missing, requests, attempt=gang.status.attempt)

    def _keep(self, gang: Gang, members: Iterable[str]) -> None:
        """Reserve these members' own nodes again: their Bindings are under way, and will be seen any moment."""
        placed = placed_nodes(gang.status)
        own = {member: placed[member] for member in members if member in placed}
        if own:
            requests = self._requests(self._of(key_of(gang), gang.status.attempt), gang)
            self._view.reserve(key_of(gang), own, requests, attempt=gang.status.attempt)

    def _requests(self, reservation: _Reservation, gang: Gang) -> Mapping[str, Amounts]:
        if reservation.spec is not gang.spec:
            reservation.spec, reservation.requests = gang.spec, requests_by_kind(valid_pod_sets_of(gang.spec))
        return reservation.requests


def _note_succeeded(succeeded: set[str], pods: Pods) -> None:
    """A member that has another pod since is to run again."""
    for member, pod in pods.items():
        (succeeded.add if pod.status.phase == SUCCEEDED else succeeded.discard)(member)
