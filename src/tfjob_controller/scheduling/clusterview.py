"""What every node has left: allocatable less what pods take and what is reserved for gangs.

Theory of operation. The view keeps a book for each node (nodebook.py), and changes it a little with every event:
`set_node`, `set_pod`, `reserve` and their opposites. A pod counts while it has a node and has not finished. A
reservation holds room for one member of an admitted gang, and counts until that member's pod is there:

- a pod *covers* a reservation if its labels name that gang, member and attempt and it is on the reserved node. Then
  the pod counts and the reservation does not;
- when the pod goes, its reservation counts again, so that a replacement finds its room. A member that will not come
  back (it has succeeded) is given up by `release_member`: that is the caller's to say;
- a pod of an older attempt, or on another node, covers nothing: both count.

What a node has left is a `Room`, an immutable value that is replaced with each change; the old one is noted under the
view's `version`, so that a reader who remembers a version can be told what has changed since (`changes_since`). Nodes
whose rooms are alike stand together in a `Pool` per constraint, which is what placement reads: a cluster of thousands
of nodes has few different rooms.

A room may be negative: pods of other schedulers came where something was reserved.

Threads: none of its methods may run at the same time as another; the caller holds one lock. But one room, which is
immutable, can be read without it (`rooms.get`), and so can whether a pod is counted (`has_pod`) and `used_shares`.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tfjob_controller.api.cluster import FINISHED_PHASES, Node, ScheduledPod
from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL, kind_of
from tfjob_controller.api.podrequests import Amounts, add_amounts, requests_of
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import CandidateNodes, FreedCapacity, NodeAccount, NodeInfo, NodeInfoChange

# After so many changes a reader had better look at everything again.
_REMEMBERED_CHANGES = 4096
# Pools of constraints that nobody asked for lately are forgotten.
_MAX_POOLS = 128


@dataclass(frozen=True, slots=True)
class ViewStatistics:
    """What the books hold. `reserved` is by resource, of reservations whose pods are not there yet."""

    nodes: int
    pods: int
    gangs: int
    reserved_members: int
    uncovered_members: int
    reserved: Mapping[str, int]


@dataclass(slots=True)
class _Reservation:
    node: str
    amounts: Amounts
    attempt: str
    covering: int = 0


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    amounts: Amounts
    gang: str
    member: str
    attempt: str


class ClusterView:
    """The books; see the module's text. Unknown names are ignored by all that takes something away."""

    def __init__(self) -> None:
        self._books: dict[str, NodeAccount] = {}
        self._rooms: dict[str, NodeInfo] = {}
        self._pods: dict[str, _Pod] = {}
        # Of pods that have been told to end: until when.
        self._ends: dict[str, str] = {}
        self._gangs: dict[str, dict[str, _Reservation]] = {}
        # Pods by gang and member, to find those that cover a reservation made after them.
        self._gang_pods: dict[tuple[str, str], set[str]] = {}
        self._pools: dict[NodeFilter, CandidateNodes] = {}
        self._changes: deque[NodeInfoChange] = deque(maxlen=_REMEMBERED_CHANGES)
        self._version = 0
        self._nodes_version = 0

    # What readers use

    @property
    def version(self) -> int:
        """Rises with every change of a room."""
        return self._version

    @property
    def nodes_version(self) -> int:
        """Rises when a node comes, goes, or changes in what decides who can run there; not with pods."""
        return self._nodes_version

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        """All nodes' rooms, by name. Not a copy."""
        return self._rooms

    def free(self, node: str) -> Amounts:
        """What a node has left; nothing if it is unknown."""
        room = self._rooms.get(node)
        return {} if room is None else room.free

    def has_pod(self, key: str) -> bool:
        """Whether this pod takes room on a node by now."""
        return key in self._pods

    def terminating_pods(self) -> Iterator[tuple[str, Amounts, str]]:
        """What will come free by itself: node and amounts of each pod that was told to end, and when it should have.

        Not of those whose room is reserved for another in their place.
        """
        for key, moment in self._ends.items():
            pod = self._pods[key]
            reservation = self._gangs.get(pod.gang, {}).get(pod.member)
            if reservation is None or not _covers(pod, reservation):
                yield pod.node, pod.amounts, moment

    def free_without_gangs(self, node: str) -> Amounts:
        """What the node would have left if there were no gangs: allocatable less foreign pods."""
        room = self._rooms.get(node)
        return {} if room is None else self._books[node].free_without_gangs(room.free)

    def candidates(self, constraint: NodeFilter) -> CandidateNodes:
        """The nodes that suit a constraint. Not a copy: changes with the view."""
        pool = self._pools.pop(constraint, None)
        if pool is None:
            pool = CandidateNodes(constraint)
            for room in self._rooms.values():
                pool.replace(None, room)
            if len(self._pools) >= _MAX_POOLS:
                del self._pools[next(iter(self._pools))]
        self._pools[constraint] = pool
        return pool

    def changes_since(self, version: int) -> list[NodeInfoChange] | None:
        """What changed after that version, oldest first; None if it is too long ago."""
        count = self._version - version
        if count > len(self._changes):
            return None
        return [self._changes[index] for index in range(len(self._changes) - count, len(self._changes))]

    def reserved_members(self, gang_key: str) -> Mapping[str, str]:
        """The nodes of all members of a gang that have a reservation, whether their pods are there or not."""
        return {member: each.node for member, each in self._gangs.get(gang_key, {}).items()}

    def statistics(self) -> ViewStatistics:
        members = [each for gang in self._gangs.values() for each in gang.values()]
        open_members = [each for each in members if not each.covering]
        reserved: dict[str, int] = {}
        for each in open_members:
            add_amounts(reserved, each.amounts, 1)
        return ViewStatistics(
            len(self._rooms), len(self._pods), len(self._gangs), len(members), len(open_members), reserved
        )

    def utilization(self) -> Mapping[str, float]:
        """By resource: what bound pods request, as a share of what all nodes have. Needs no lock."""
        total: dict[str, int] = {}
        left: dict[str, int] = {}
        for room in list(self._rooms.values()):
            add_amounts(total, room.allocatable, 1)
            add_amounts(left, room.free, 1)
            # Reserved room is free as long as the pods are not there.
            add_amounts(left, room.reserved, 1)
        return {name: 1 - left[name] / value for name, value in total.items() if value}

    # Nodes and pods

    def set_node(self, node: Node) -> None:
        """A node is there, or has changed."""
        if self._book(node.metadata.name).set_node(node):
            self._nodes_version += 1
            self._refresh([node.metadata.name])

    def remove_node(self, name: str) -> None:
        """A node is gone; pods and reservations there are remembered until they go too."""
        book = self._books.get(name)
        if book is None or book.node is None:
            return
        book.node = None
        self._nodes_version += 1
        self._refresh([name])

    def set_pod(self, pod: ScheduledPod) -> None:
        """A pod is there, or has changed; see the module's text for what counts."""
        key = key_of(pod)
        new = None if pod.status.phase in FINISHED_PHASES or not pod.spec.node_name else _pod(pod)
        old = self._pods.get(key)
        if new != old:
            self._replace_pod(key, old, new)
        if new is not None and pod.metadata.deletion_timestamp:
            self._ends[key] = pod.metadata.deletion_timestamp
        else:
            self._ends.pop(key, None)

    def remove_pod(self, key: str) -> None:
        """A pod is gone."""
        old = self._pods.get(key)
        if old is not None:
            self._ends.pop(key, None)
            self._replace_pod(key, old, None)

    def _replace_pod(self, key: str, old: _Pod | None, new: _Pod | None) -> None:
        if old is not None:
            del self._pods[key]
            self._count_pod(key, old, -1)
        if new is not None:
            self._pods[key] = new
            self._count_pod(key, new, 1)
        self._refresh({each.node for each in (old, new) if each is not None})

    def _count_pod(self, key: str, pod: _Pod, sign: int) -> None:
        book = self._book(pod.node)
        book.add(pod.amounts, sign, is_gang=bool(pod.gang))
        book.pods += sign
        if not pod.gang:
            return
        siblings = self._gang_pods.setdefault((pod.gang, pod.member), set())
        if sign > 0:
            siblings.add(key)
        else:
            siblings.discard(key)
        if not siblings:
            del self._gang_pods[pod.gang, pod.member]
        reservation = self._gangs.get(pod.gang, {}).get(pod.member)
        if reservation is not None and _covers(pod, reservation):
            self._cover(reservation, sign)

    # Reservations

    def reserve(
        self, gang_key: str, placement: Mapping[str, str], requests: Mapping[str, Amounts], *, attempt: int
    ) -> None:
        """Hold room for members (id → node); those that had some already are moved, the gang's others stay.

        `requests` says what a pod of each kind (`worker`) takes. Whether there is room is not asked: what has been
        written to a Gang's status counts, also after a restart.
        """
        changed: set[str] = set()
        gang = self._gangs.setdefault(gang_key, {})
        for member_id, node in placement.items():
            changed |= self._drop(gang.pop(member_id, None))
            reservation = _Reservation(node, requests.get(kind_of(member_id), {}), str(attempt))
            gang[member_id] = reservation
            book = self._book(node)
            book.reserve(reservation.amounts, 1)
            book.reservations += 1
            changed.add(node)
            pods = (self._pods[key] for key in self._gang_pods.get((gang_key, member_id), ()))
            self._cover(reservation, sum(_covers(pod, reservation) for pod in pods))
        if not gang:
            del self._gangs[gang_key]
        self._refresh(changed)

    def unreserve(self, gang_key: str) -> None:
        """Give back all that is reserved for a gang; its pods count as long as they are there."""
        changed: set[str] = set()
        for reservation in self._gangs.pop(gang_key, {}).values():
            changed |= self._drop(reservation)
        self._refresh(changed)

    def unreserve_member(self, gang_key: str, member_id: str) -> None:
        """The same for one member."""
        gang = self._gangs.get(gang_key, {})
        changed = self._drop(gang.pop(member_id, None))
        if changed and not gang:
            del self._gangs[gang_key]
        self._refresh(changed)

    def _drop(self, reservation: _Reservation | None) -> set[str]:
        if reservation is None:
            return set()
        book = self._books[reservation.node]
        if not reservation.covering:
            book.reserve(reservation.amounts, -1)
        book.reservations -= 1
        return {reservation.node}

    def _cover(self, reservation: _Reservation, pods: int) -> None:
        before = bool(reservation.covering)
        reservation.covering += pods
        after = bool(reservation.covering)
        if before != after:
            self._books[reservation.node].reserve(reservation.amounts, -1 if after else 1)

    # The books

    def _book(self, node: str) -> NodeAccount:
        return self._books.setdefault(node, NodeAccount())

    def _refresh(self, names: Iterable[str]) -> None:
        """Make the rooms of these nodes anew and tell the pools."""
        for name in sorted(names):
            book = self._books[name]
            before = self._rooms.get(name)
            after = book.node_info()
            if after is not None:
                self._rooms[name] = after
            else:
                self._rooms.pop(name, None)
                if book.is_empty:
                    del self._books[name]
            if before is None and after is None:
                continue
            for pool in self._pools.values():
                pool.replace(before, after)
            self._changes.append(NodeInfoChange(before, after))
            self._version += 1


class WhatIfView:
    """`placement.Cluster` over a view that does not change meanwhile. Nodes that are not there get no room."""

    def __init__(self, view: ClusterView, freed: Iterable[FreedCapacity]) -> None:
        self._view = view
        more: dict[str, dict[str, int]] = {}
        for each in freed:
            if each.node in view.node_infos:
                add_amounts(more.setdefault(each.node, {}), each.amounts)
        self._changed = {name: _with_more(view.node_infos[name], amounts) for name, amounts in more.items()}
        self._pools: dict[NodeFilter, CandidateNodes] = {}

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        # It only reads from what comes after the first map, which the type does not say.
        return ChainMap(self._changed, self._view.node_infos)  # type: ignore[arg-type]

    def candidates(self, constraint: NodeFilter) -> CandidateNodes:
        """The nodes that suit a constraint."""
        if constraint not in self._pools:
            self._pools[constraint] = self._made(self._view.candidates(constraint))
        return self._pools[constraint]

    def _made(self, pool: CandidateNodes) -> CandidateNodes:
        changes = [(self._view.node_infos[name], room) for name, room in self._changed.items()]
        groups = dict(pool.groups)
        for key in {room.free_key for change in changes for room in change}:
            if key in groups:
                groups[key] = dict(groups[key])
        made = CandidateNodes(pool.node_filter, groups)
        for old, new in changes:
            made.replace(old, new)
        return made


def _with_more(room: NodeInfo, amounts: Amounts) -> NodeInfo:
    free = {name: value + amounts.get(name, 0) for name, value in room.free.items()}
    return replace(room, free=free, free_key=tuple(free.items()))


def _pod(pod: ScheduledPod) -> _Pod:
    labels = pod.metadata.labels
    gang, member = labels.get(GANG_LABEL, ""), labels.get(MEMBER_LABEL, "")
    key = f"{pod.metadata.namespace}/{gang}" if gang and member else ""
    try:
        amounts: Amounts = requests_of(pod)
    except ValueError:
        # The API server lets no such pod pass; one that came all the same should not stop everything.
        amounts = {"pods": 1}
    return _Pod(pod.spec.node_name, amounts, key, member if key else "", labels.get(ATTEMPT_LABEL, ""))


def _covers(pod: _Pod, reservation: _Reservation) -> bool:
    return pod.node == reservation.node and pod.attempt == reservation.attempt
