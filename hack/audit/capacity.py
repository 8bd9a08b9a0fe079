"""The capacity of nodes, what pods use of it, and what is reserved for members without a pod on their node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from audit.objects import Gang, Need, Node, Pod
from audit.quantity import Amounts, add_amounts


@dataclass(slots=True)
class ClusterCapacity:
    """The pods of each node and the capacity that they use, updated by `add` and `remove`."""

    nodes: dict[str, Node] = field(default_factory=dict)
    _pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, pod: Pod) -> None:
        """Adds a pod that uses capacity. An earlier pod of the same key must have been removed."""
        self._pods.setdefault(pod.node, {})[pod.key] = pod
        add_amounts(self._used.setdefault(pod.node, {}), pod.requests, 1)

    def remove(self, pod: Pod) -> None:
        del self._pods[pod.node][pod.key]
        add_amounts(self._used[pod.node], pod.requests, -1)

    def pods_on(self, node: str) -> Iterable[Pod]:
        return self._pods.get(node, {}).values()

    def excess(self, pod: Pod, without: Iterable[Pod] = ()) -> Mapping[str, tuple[int, int]]:
        """Returns the over-committed resources among those that the pod requests: used and allocatable amounts.

        Pods in `without` do not count. A node that is deleted, or was recreated and has not reported its capacity yet,
        cannot be judged and has no excess.
        """
        node = self.nodes.get(pod.node)
        if node is None or not node.allocatable:
            return {}
        used = dict(self._used.get(pod.node, {}))
        for other in without:
            add_amounts(used, other.requests, -1)
        wanted = [name for name, value in pod.requests.items() if value > 0]
        figures = {name: (used.get(name, 0), node.allocatable.get(name, 0)) for name in wanted}
        return {name: both for name, both in figures.items() if both[0] > both[1]}

    def free(self, reserved: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
        """Returns what the open nodes have left after pods and `reserved`, by node."""
        free = {name: dict(node.allocatable) for name, node in self.nodes.items() if node.is_open}
        for name, left in free.items():
            add_amounts(left, self._used.get(name, {}), -1)
            add_amounts(left, reserved.get(name, {}), -1)
        return free


def reservations(gangs: Iterable[tuple[Gang, Iterable[str]]]) -> dict[str, Amounts]:
    """Returns the requests of members without a pod, by node. Each gang comes with the members to leave out."""
    reserved: dict[str, dict[str, int]] = {}
    for gang, covered in gangs:
        requests = {need.name: need.requests for need in gang.needs}
        for member in gang.placement.keys() - set(covered):
            node = gang.placement[member]
            add_amounts(reserved.setdefault(node, {}), requests.get(member.rpartition("-")[0], {}))
    return dict(reserved)


def fits(needs: Iterable[Need], capacity: ClusterCapacity, free: Mapping[str, Mapping[str, int]]) -> bool:
    """Reports whether all pods can be placed by filling one node after another.

    True is always right. False may be wrong if another order, or a toleration, would help.
    """
    left = {name: dict(values) for name, values in free.items()}
    ordered = sorted(needs, key=lambda need: (-max(need.requests.values(), default=0), need.name))
    return all(_fill(need, capacity, left) for need in ordered)


def _fill(need: Need, capacity: ClusterCapacity, left: dict[str, dict[str, int]]) -> bool:
    if not need.is_plain:
        return False
    remaining = need.count
    for name in sorted(left):
        if remaining and need.selector.items() <= capacity.nodes[name].labels.items():
            taken = min(remaining, _count_that_fit(need.requests, left[name]))
            add_amounts(left[name], need.requests, -taken)
            remaining -= taken
    return remaining == 0


def _count_that_fit(requests: Amounts, left: Amounts) -> int:
    return max(0, min((left.get(name, 0) // value for name, value in requests.items() if value > 0), default=0))
