"""The capacity of one node: as an account that changes with every event, and as the immutable value that readers see.

`NodeAccount` records what pods and reservations use; `NodeInfo` is a snapshot of it. `CandidateNodes` groups the nodes
that pass one filter by their free capacity, so that placement looks at each distinct capacity once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.common.podrequests import Amounts, add_amounts
from tfjob_controller.api.common.quantity import amount_from
from tfjob_controller.scheduling.nodefilter import NodeFilter, NodeVerdicts


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """The free capacity of a node. `free_key` is equal for nodes with equal free capacity.

    `reserved` is what reservations use whose pods do not exist yet; it is already subtracted from `free`.
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
    """The nodes that pass one filter, grouped by free capacity."""

    node_filter: NodeFilter
    verdicts: NodeVerdicts
    groups: dict[tuple[tuple[str, int], ...], dict[str, NodeInfo]] = field(default_factory=dict)

    def replace(self, old: NodeInfo | None, new: NodeInfo | None) -> None:
        """Replaces the info of one node; None means that the node does not exist."""
        was_accepted = old is not None and old.name in self.groups.get(old.free_key, ())
        if old is not None and was_accepted:
            group = self.groups[old.free_key]
            del group[old.name]
            if not group:
                del self.groups[old.free_key]
        if new is None:
            return
        is_same_node = old is not None and old.node is new.node
        if was_accepted if is_same_node else not self.verdicts.rejection(self.node_filter, new.node):
            self.groups.setdefault(new.free_key, {})[new.name] = new


@dataclass(frozen=True, slots=True)
class NodeInfoChange:
    """The info of one node before and after a change; None where the node did not exist."""

    before: NodeInfo | None
    after: NodeInfo | None


@dataclass(frozen=True, slots=True)
class FreedCapacity:
    """Capacity that counts as used in the view and will be freed, for example by a terminating pod."""

    node: str
    amounts: Mapping[str, int]


def nodes_without_capacity(
    node_infos: Mapping[str, NodeInfo], names: Iterable[str], amounts: Sequence[tuple[str, int]]
) -> set[str]:
    """Returns those of `names` that lack the capacity for `amounts`. Unknown nodes are not among them.

    kube-scheduler waits for the result: plain loops take half the time of a generator.
    """
    full: set[str] = set()
    for name in names:
        info = node_infos.get(name)
        if info is None:
            continue
        free = info.free
        for resource, value in amounts:
            if free.get(resource, 0) < value:
                full.add(name)
                break
    return full


@dataclass(slots=True)
class NodeAccount:
    """Records the use of one node. Pods may be known before their node is, and may outlive it."""

    node: Node | None = None
    pods: int = 0
    reservations: int = 0
    _allocatable: dict[str, int] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)
    # The part of `_used` that belongs to pods and reservations of gangs.
    by_gangs: dict[str, int] = field(default_factory=dict)
    # The part of `by_gangs` that belongs to reservations whose pods do not exist.
    _reserved: dict[str, int] = field(default_factory=dict)

    def set_node(self, node: Node) -> bool:
        """Sets the node. Returns False if nothing relevant changed. Invalid quantities count as absent."""
        if self.node is not None and _is_equivalent(self.node, node):
            return False
        self.node, self._allocatable = node, _allocatable(node)
        return True

    def add(self, amounts: Amounts, sign: int, *, is_gang: bool) -> None:
        """Adds what a pod uses, or subtracts it with `sign` -1."""
        add_amounts(self._used, amounts, sign)
        if is_gang:
            add_amounts(self.by_gangs, amounts, sign)

    def reserve(self, amounts: Amounts, sign: int) -> None:
        """Does the same for a reservation whose pod does not exist."""
        self.add(amounts, sign, is_gang=True)
        add_amounts(self._reserved, amounts, sign)

    @property
    def is_empty(self) -> bool:
        """Whether the account can be dropped."""
        return self.node is None and not (self.pods or self.reservations)

    def node_info(self) -> NodeInfo | None:
        """Returns a snapshot, or None while the node does not exist."""
        if self.node is None:
            return None
        free = {name: value - self._used.get(name, 0) for name, value in self._allocatable.items()}
        reserved = {name: value for name, value in self._reserved.items() if value}
        return NodeInfo(self.node, self._allocatable, free, tuple(free.items()), reserved)


def _allocatable(node: Node) -> dict[str, int]:
    """Sorted by name, so that equal nodes have equal keys."""
    found: dict[str, int] = {}
    for name, text in sorted(node.status.allocatable.items()):
        try:
            found[name] = amount_from(name, text)
        except ValueError:
            continue
    return found


def _is_equivalent(old: Node, new: Node) -> bool:
    """Whether nothing relevant differs: kubelets report every few minutes, mostly without a change."""
    return (
        old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.metadata.labels == new.metadata.labels
        and _ready_statuses(old) == _ready_statuses(new)
    )


def _ready_statuses(node: Node) -> list[str]:
    return [condition.status for condition in node.status.conditions if condition.type == "Ready"]
