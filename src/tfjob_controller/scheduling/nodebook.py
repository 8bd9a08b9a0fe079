"""One node's account: what it has, what is taken of it and by whom, and the room that is left."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfjob_controller.api.cluster import Node
from tfjob_controller.api.podrequests import Amounts, add_amounts
from tfjob_controller.api.quantity import amount_from
from tfjob_controller.scheduling.rooms import Room


@dataclass(slots=True)
class NodeBook:
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

    def put(self, node: Node) -> bool:
        """The node is so now. False if that is as good as it was. Quantities that are none count as nothing."""
        if self.node is not None and _is_alike(self.node, node):
            return False
        self.node, self._allocatable = node, _allocatable(node)
        return True

    def take(self, amounts: Amounts, sign: int, *, is_gang: bool) -> None:
        """A pod's, or with -1 give it back."""
        add_amounts(self._used, amounts, sign)
        if is_gang:
            add_amounts(self._by_gangs, amounts, sign)

    def reserve(self, amounts: Amounts, sign: int) -> None:
        """The same for a reservation whose pod is not there."""
        self.take(amounts, sign, is_gang=True)
        add_amounts(self._reserved, amounts, sign)

    @property
    def is_empty(self) -> bool:
        """Nothing need be remembered of it."""
        return self.node is None and not (self.pods or self.reservations)

    def room(self) -> Room | None:
        """What is left, as a new value; None while there is no node."""
        if self.node is None:
            return None
        free = {name: value - self._used.get(name, 0) for name, value in self._allocatable.items()}
        reserved = {name: value for name, value in self._reserved.items() if value}
        return Room(self.node, self._allocatable, free, tuple(free.items()), reserved)

    def without_gangs(self, free: Amounts) -> dict[str, int]:
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
