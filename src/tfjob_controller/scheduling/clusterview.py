"""The free capacity of every node: allocatable less what pods request and what is reserved for gangs.

Theory of operation. The view keeps an account for each node (nodeinfo.py) and updates it with every event. A pod counts
while it is assigned to a node and has not finished. A reservation holds capacity for one member of an admitted gang,
and counts until that member's pod exists:

- a pod *covers* a reservation if its labels name the gang, the member and the attempt, and it is on the reserved node.
  The pod then counts and the reservation does not;
- when the pod is deleted, its reservation counts again, so that a replacement finds its capacity. The caller gives up
  the reservation of a member that will not come back (it has succeeded) with `unreserve_member`;
- a pod of an older attempt, or on another node, covers nothing: both count.

Each change replaces the node's `NodeInfo`, an immutable value, and is recorded under the view's `version`, so that a
reader can ask what has changed since a version (`changes_since`). Placement reads `candidates`: a cluster of thousands
of nodes has few distinct free capacities.

The view also sums up what each namespace uses and holds reserved, and what all nodes have (`usage`, `allocatable`).

Free capacity may be negative, when another scheduler binds pods where capacity was reserved.

`WhatIfView` (whatif.py) is the view as it would be with more free capacity on some nodes.

Threads: the caller holds one lock for all methods. Without the lock one may read a single `NodeInfo`
(`node_infos.get`), all of them (`list(node_infos.values())`), `has_pod` and `utilization`, and use `verdicts`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tfjob_controller.api.common.cluster import FINISHED_PHASES, Node, ScheduledPod
from tfjob_controller.api.common.podrequests import Amounts, add_amounts, requests_of
from tfjob_controller.api.gang import ATTEMPT_LABEL, gang_key_of, kind_of, member_of
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.nodefilter import NodeFilter, NodeVerdicts
from tfjob_controller.scheduling.nodeinfo import CandidateNodes, FreedCapacity, NodeAccount, NodeInfo, NodeInfoChange

# A reader that is further behind reads everything again.
_REMEMBERED_CHANGES = 4096
# The least recently used candidate sets are dropped.
_MAX_CANDIDATE_SETS = 128


@dataclass(frozen=True, slots=True)
class ViewStatistics:
    """Counts of the view. `reserved` is by resource, for reservations whose pods do not exist yet."""

    gangs: int
    reserved_members: int
    uncovered_members: int
    reserved: Mapping[str, int]


@dataclass(slots=True)
class _Reservation:
    node: str
    amounts: Amounts
    attempt: str
    namespace: str
    covering: int = 0


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    amounts: Amounts
    gang: str
    member: str
    attempt: str


class ClusterView:
    """See the module's text. Methods that remove something ignore unknown names. Only the view changes its versions."""

    def __init__(self) -> None:
        self._accounts: dict[str, NodeAccount] = {}
        self._node_infos: dict[str, NodeInfo] = {}
        self._pods: dict[str, _Pod] = {}
        # The deletion deadlines of terminating pods.
        self._deletion_times: dict[str, str] = {}
        self._gangs: dict[str, dict[str, _Reservation]] = {}
        # Pods by gang and member: a reservation may be added after the pods that cover it.
        self._gang_pods: dict[tuple[str, str], set[str]] = {}
        self.verdicts = NodeVerdicts()
        self._candidates: dict[NodeFilter, CandidateNodes] = {}
        self._changes: deque[NodeInfoChange] = deque(maxlen=_REMEMBERED_CHANGES)
        self._usage: dict[str, dict[str, int]] = {}
        self._allocatable: dict[str, int] = {}
        # Rises with every change of a node's info.
        self.version = 0
        # Rises when a node is added or deleted, or when its labels, taints, conditions or allocatable change.
        self.nodes_version = 0

    # Reading

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        """All nodes, by name. Not a copy."""
        return self._node_infos

    def free(self, node: str) -> Amounts:
        """Returns the free capacity of a node; empty if the node is unknown."""
        info = self._node_infos.get(node)
        return {} if info is None else info.free

    @property
    def allocatable(self) -> Amounts:
        """What all nodes have together. Not a copy."""
        return self._allocatable

    def usage(self, namespace: str) -> Amounts:
        """Returns what a namespace's pods on nodes request and what is reserved for its gangs. Not a copy."""
        return self._usage.get(namespace, {})

    def has_pod(self, key: str) -> bool:
        """Whether this pod counts on a node by now."""
        return key in self._pods

    def terminating_pods(self) -> Iterator[tuple[str, Amounts, str]]:
        """Yields node, requests and deletion deadline of each terminating pod.

        Pods whose capacity stays reserved for a replacement are left out.
        """
        for key, moment in self._deletion_times.items():
            pod = self._pods[key]
            reservation = self._gangs.get(pod.gang, {}).get(pod.member)
            if reservation is None or not _covers(pod, reservation):
                yield pod.node, pod.amounts, moment

    def free_without_gangs(self, node: str) -> Amounts:
        """Returns what a node that exists would have free without any gang: allocatable less the other pods."""
        by_gangs = self._accounts[node].by_gangs
        return {name: value + by_gangs.get(name, 0) for name, value in self._node_infos[node].free.items()}

    def candidates(self, node_filter: NodeFilter) -> CandidateNodes:
        """Returns the nodes that pass a filter. Not a copy: it changes with the view."""
        nodes = self._candidates.pop(node_filter, None)
        if nodes is None:
            nodes = CandidateNodes(node_filter, self.verdicts)
            for info in self._node_infos.values():
                nodes.replace(None, info)
            if len(self._candidates) >= _MAX_CANDIDATE_SETS:
                del self._candidates[next(iter(self._candidates))]
        self._candidates[node_filter] = nodes
        return nodes

    def changes_since(self, version: int) -> list[NodeInfoChange] | None:
        """Returns the changes after a version, oldest first; None if that version is too old."""
        count = self.version - version
        if count > len(self._changes):
            return None
        return [self._changes[index] for index in range(len(self._changes) - count, len(self._changes))]

    def reserved_members(self, gang_key: str) -> Mapping[str, str]:
        """Returns the node of each member of a gang that has a reservation, whether its pod exists or not."""
        return {member: each.node for member, each in self._gangs.get(gang_key, {}).items()}

    def capacity_of(self, gang_key: str) -> list[FreedCapacity]:
        """Returns what would be free without the gang's members, by node: their pods, or what is reserved for them."""
        found: list[FreedCapacity] = []
        for member, reservation in self._gangs.get(gang_key, {}).items():
            pods = (self._pods[key] for key in self._gang_pods.get((gang_key, member), ()))
            amounts = [pod.amounts for pod in pods if _covers(pod, reservation)] or [reservation.amounts]
            found += [FreedCapacity(reservation.node, amount) for amount in amounts]
        return found

    def ending_capacity_of(self, gang_key: str, members: Iterable[str]) -> list[FreedCapacity]:
        """Returns what is about to be free of a gang that has ended: what is reserved for it, and what its pods use.

        Terminating pods without a reservation are left out (`terminating_pods`).
        """
        reserved = self._gangs.get(gang_key, {})
        keys = [key for member in members for key in self._gang_pods.get((gang_key, member), ())]
        pods = [self._pods[key] for key in keys if key not in self._deletion_times]
        pods = [pod for pod in pods if pod.member not in reserved or not _covers(pod, reserved[pod.member])]
        return self.capacity_of(gang_key) + [FreedCapacity(pod.node, pod.amounts) for pod in pods]

    def statistics(self) -> ViewStatistics:
        members = [each for gang in self._gangs.values() for each in gang.values()]
        open_members = [member for member in members if not member.covering]
        reserved: dict[str, int] = {}
        for member in open_members:
            add_amounts(reserved, member.amounts, 1)
        return ViewStatistics(len(self._gangs), len(members), len(open_members), reserved)

    def utilization(self) -> Mapping[str, float]:
        """Returns by resource what bound pods request, as a share of all nodes' allocatable. Needs no lock."""
        total: dict[str, int] = {}
        left: dict[str, int] = {}
        for info in list(self._node_infos.values()):
            add_amounts(total, info.allocatable, 1)
            add_amounts(left, info.free, 1)
            # Reserved capacity is unused as long as the pods do not exist.
            add_amounts(left, info.reserved, 1)
        return {name: 1 - left[name] / value for name, value in total.items() if value}

    # Nodes and pods

    def set_node(self, node: Node) -> None:
        """Adds or updates a node."""
        if self._account(node.metadata.name).set_node(node):
            self.nodes_version += 1
            self._refresh([node.metadata.name])

    def remove_node(self, name: str) -> None:
        """Removes a node; its pods and reservations are remembered until they are removed too."""
        account = self._accounts.get(name)
        if account is None or account.node is None:
            return
        account.node = None
        self.nodes_version += 1
        self._refresh([name])

    def set_pod(self, pod: ScheduledPod) -> None:
        """Adds or updates a pod; the module's docstring lists which pods count."""
        key = key_of(pod)
        new = None if pod.status.phase in FINISHED_PHASES or not pod.spec.node_name else _pod(pod)
        old = self._pods.get(key)
        if new != old:
            self._replace_pod(key, old, new)
        if new is not None and pod.metadata.deletion_timestamp:
            self._deletion_times[key] = pod.metadata.deletion_timestamp
        else:
            self._deletion_times.pop(key, None)

    def remove_pod(self, key: str) -> None:
        """Removes a pod."""
        old = self._pods.get(key)
        if old is not None:
            self._deletion_times.pop(key, None)
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
        account = self._account(pod.node)
        account.add(pod.amounts, sign, is_gang=bool(pod.gang))
        account.pods += sign
        self._use(key.partition("/")[0], pod.amounts, sign)
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
            self._add_covering(reservation, sign)

    # Reservations

    def reserve(
        self, gang_key: str, placement: Mapping[str, str], requests: Mapping[str, Amounts], *, attempt: int
    ) -> None:
        """Reserves capacity for members (id → node), and moves existing reservations of these members.

        `requests` is what a pod of each kind (`worker`) requests. Capacity is not checked: what a Gang's status records
        counts, also after a restart.
        """
        changed: set[str] = set()
        gang = self._gangs.setdefault(gang_key, {})
        namespace = gang_key.partition("/")[0]
        for member_id, node in placement.items():
            changed |= self._remove_reservation(gang.pop(member_id, None))
            reservation = _Reservation(node, requests.get(kind_of(member_id), {}), str(attempt), namespace)
            gang[member_id] = reservation
            self._hold(reservation, 1)
            self._account(node).reservations += 1
            changed.add(node)
            pods = (self._pods[key] for key in self._gang_pods.get((gang_key, member_id), ()))
            self._add_covering(reservation, sum(_covers(pod, reservation) for pod in pods))
        if not gang:
            del self._gangs[gang_key]
        self._refresh(changed)

    def unreserve(self, gang_key: str) -> None:
        """Removes all reservations of a gang; its pods count as long as they exist."""
        changed: set[str] = set()
        for reservation in self._gangs.pop(gang_key, {}).values():
            changed |= self._remove_reservation(reservation)
        self._refresh(changed)

    def unreserve_member(self, gang_key: str, member_id: str) -> None:
        """Removes the reservation of one member."""
        gang = self._gangs.get(gang_key, {})
        changed = self._remove_reservation(gang.pop(member_id, None))
        if changed and not gang:
            del self._gangs[gang_key]
        self._refresh(changed)

    def _remove_reservation(self, reservation: _Reservation | None) -> set[str]:
        if reservation is None:
            return set()
        if not reservation.covering:
            self._hold(reservation, -1)
        self._accounts[reservation.node].reservations -= 1
        return {reservation.node}

    def _add_covering(self, reservation: _Reservation, pods: int) -> None:
        before = bool(reservation.covering)
        reservation.covering += pods
        after = bool(reservation.covering)
        if before != after:
            self._hold(reservation, -1 if after else 1)

    def _hold(self, reservation: _Reservation, sign: int) -> None:
        self._account(reservation.node).reserve(reservation.amounts, sign)
        self._use(reservation.namespace, reservation.amounts, sign)

    # Accounts

    def _use(self, namespace: str, amounts: Amounts, sign: int) -> None:
        usage = self._usage.setdefault(namespace, {})
        add_amounts(usage, amounts, sign)
        if not any(usage.values()):
            del self._usage[namespace]

    def _account(self, node: str) -> NodeAccount:
        return self._accounts.setdefault(node, NodeAccount())

    def _refresh(self, names: Iterable[str]) -> None:
        """Replaces the infos of these nodes and updates the candidate sets."""
        for name in sorted(names):
            account = self._accounts[name]
            before = self._node_infos.get(name)
            after = account.node_info()
            if after is not None:
                self._node_infos[name] = after
            else:
                self._node_infos.pop(name, None)
                if account.is_empty:
                    del self._accounts[name]
            if before is None and after is None:
                continue
            self._count_allocatable(before, after)
            for nodes in self._candidates.values():
                nodes.replace(before, after)
            self._changes.append(NodeInfoChange(before, after))
            self.version += 1

    def _count_allocatable(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        if before is not None and after is not None and before.allocatable == after.allocatable:
            return
        if before is not None:
            add_amounts(self._allocatable, before.allocatable, -1)
        if after is not None:
            add_amounts(self._allocatable, after.allocatable, 1)


def _pod(pod: ScheduledPod) -> _Pod:
    member = member_of(pod.metadata)
    key = gang_key_of(pod.metadata) if member else ""
    try:
        amounts: Amounts = requests_of(pod)
    except ValueError:
        # The API server rejects such pods; one that exists anyway must not stop scheduling.
        amounts = {"pods": 1}
    return _Pod(pod.spec.node_name, amounts, key, member if key else "", pod.metadata.labels.get(ATTEMPT_LABEL, ""))


def _covers(pod: _Pod, reservation: _Reservation) -> bool:
    return pod.node == reservation.node and pod.attempt == reservation.attempt
