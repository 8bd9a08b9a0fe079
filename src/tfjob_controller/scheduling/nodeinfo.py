"""What a node has left, as an immutable value; and nodes that suit alike, in groups that have alike left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.api.cluster import Node
from tfjob_controller.api.podrequests import Amounts, add_amounts
from tfjob_controller.api.quantity import amount_from
from tfjob_controller.scheduling.nodefilter import NodeFilter


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """What a node has left. `key` is equal for rooms that are alike, whatever the node.

    `reserved` is what reservations take whose pods are not there: without them there would be so much more.
    """

    node: Node
    allocatable: Amounts
    free: Amounts
    free_key: tuple[tuple[str, int], ...]
    reserved: Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.metadata.name


@dataclass(slots=True)
class CandidateNodes:
    """The nodes that suit one constraint, by what they have left."""

    node_filter: NodeFilter
    groups: dict[tuple[tuple[str, int], ...], dict[str, NodeInfo]] = field(default_factory=dict)

    def replace(self, old: NodeInfo | None, new: NodeInfo | None) -> None:
        if old is not None and old.name in self.groups.get(old.free_key, ()):
            group = self.groups[old.free_key]
            del group[old.name]
            if not group:
                del self.groups[old.free_key]
        if new is not None and not self.node_filter.rejection(new.node):
            self.groups.setdefault(new.free_key, {})[new.name] = new


@dataclass(frozen=True, slots=True)
class NodeInfoChange:
    """One node's room before and after; None where the node was not there."""

    before: NodeInfo | None
    after: NodeInfo | None


@dataclass(frozen=True, slots=True)
class FreedCapacity:
    """Room on a node that counts as taken in the view, and will come free by itself: a pod that is ending."""

    node: str
    amounts: Mapping[str, int]


def nodes_without_capacity(
    rooms: Mapping[str, NodeInfo], names: Iterable[str], amounts: Sequence[tuple[str, int]]
) -> set[str]:
    """Those of `names` without room for this; of others nothing is known.

    kube-scheduler waits meanwhile: plain loops take half a generator's time.
    """
    full: set[str] = set()
    for name in names:
        room = rooms.get(name)
        if room is None:
            continue
        free = room.free
        for resource, value in amounts:
            if free.get(resource, 0) < value:
                full.add(name)
                break
    return full


@dataclass(slots=True)
class NodeAccount:
    """Pods may be known before their node is, and may outlive it. `pods` and `reservations` count what is there."""

    node: Node | None = None
    pods: int = 0
    reservations: int = 0
    _allocatable: dict[str, int] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)
    # Of `_used`, what gangs take with pods and reservations: the rest is foreign.
    _by_gangs: dict[str, int] = field(default_factory=dict)
    # Of `_by_gangs`, what reservations take whose pods are not there.
    _reserved: dict[str, int] = field(default_factory=dict)

    def set_node(self, node: Node) -> bool:
        """The node is so now. False if that is as good as it was. Quantities that are none count as nothing."""
        if self.node is not None and _is_alike(self.node, node):
            return False
        self.node, self._allocatable = node, _allocatable(node)
        return True

    def add(self, amounts: Amounts, sign: int, *, is_gang: bool) -> None:
        """A pod's, or with -1 give it back."""
        add_amounts(self._used, amounts, sign)
        if is_gang:
            add_amounts(self._by_gangs, amounts, sign)

    def reserve(self, amounts: Amounts, sign: int) -> None:
        """The same for a reservation whose pod is not there."""
        self.add(amounts, sign, is_gang=True)
        add_amounts(self._reserved, amounts, sign)

    @property
    def is_empty(self) -> bool:
        """Nothing need be remembered of it."""
        return self.node is None and not (self.pods or self.reservations)

    def node_info(self) -> NodeInfo | None:
        """What is left, as a new value; None while there is no node."""
        if self.node is None:
            return None
        free = {name: value - self._used.get(name, 0) for name, value in self._allocatable.items()}
        reserved = {name: value for name, value in self._reserved.items() if value}
        return NodeInfo(self.node, self._allocatable, free, tuple(free.items()), reserved)

    def free_without_gangs(self, free: Amounts) -> dict[str, int]:
        """What would be left if there were no gangs, where this is."""
        return {name: value + self._by_gangs.get(name, 0) for name, value in free.items()}


def _allocatable(node: Node) -> dict[str, int]:
    """In the order of names, so that like nodes have like keys."""
    found: dict[str, int] = {}
    for name, text in sorted(node.status.allocatable.items()):
        try:
            found[name] = amount_from(name, text)
        except ValueError:
            continue
    return found


def _is_alike(old: Node, new: Node) -> bool:
    """A kubelet reports every few minutes, and mostly nothing that matters here."""
    return (
        old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.metadata.labels == new.metadata.labels
        and _ready_words(old) == _ready_words(new)
    )


def _ready_words(node: Node) -> list[str]:
    return [each.status for each in node.status.conditions if each.type == "Ready"]
