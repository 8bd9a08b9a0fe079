"""What a node has left, as an immutable value; and nodes that suit alike, in groups that have alike left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.api.cluster import Node
from tfjob_controller.api.podrequests import Amounts
from tfjob_controller.scheduling.matching import Constraint


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What a node has left. `key` is equal for rooms that are alike, whatever the node.

    `reserved` is what reservations take whose pods are not there: without them there would be so much more.
    """

    node: Node
    allocatable: Amounts
    free: Amounts
    key: tuple[tuple[str, int], ...]
    reserved: Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.metadata.name


@dataclass(slots=True)
class Pool:
    """The nodes that suit one constraint, by what they have left."""

    constraint: Constraint
    groups: dict[tuple[tuple[str, int], ...], dict[str, Room]] = field(default_factory=dict)

    def replace(self, old: Room | None, new: Room | None) -> None:
        if old is not None and old.name in self.groups.get(old.key, ()):
            group = self.groups[old.key]
            del group[old.name]
            if not group:
                del self.groups[old.key]
        if new is not None and not self.constraint.objection(new.node):
            self.groups.setdefault(new.key, {})[new.name] = new


@dataclass(frozen=True, slots=True)
class RoomChange:
    """One node's room before and after; None where the node was not there."""

    before: Room | None
    after: Room | None


def full_nodes(rooms: Mapping[str, Room], names: Iterable[str], amounts: Sequence[tuple[str, int]]) -> set[str]:
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
