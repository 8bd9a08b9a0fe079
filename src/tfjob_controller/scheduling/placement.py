"""A node for every member of a gang, or for none.

Where it goes, in this order: all on one node if one can take it; all within one domain of a topology key (a zone, a
rack), the widest key first and each narrower one within what the wider ones left; on the fewest nodes; with the least
left over; by name. If not all fit but the minimum does, as many as fit.

How far it is complete stands in `packing`: exactly for pods of one kind, else within a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfjob_controller.api.gang import NodePlacement
from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.matching import Constraint
from tfjob_controller.scheduling.packing import Group, Step, capacities, pack
from tfjob_controller.scheduling.view import ClusterView, Room


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of every member that is placed. `counts` is how many of each kind are."""

    node_of: Mapping[str, str]
    counts: Mapping[str, int]

    def by_node(self) -> tuple[NodePlacement, ...]:
        """As a Gang's status has it."""
        nodes: dict[str, list[str]] = {}
        for member_id, node in self.node_of.items():
            nodes.setdefault(node, []).append(member_id)
        return tuple(NodePlacement(node, tuple(members)) for node, members in nodes.items())


@dataclass(frozen=True, slots=True)
class NoFit:
    """There is no room: `capacities` is how many pods of each kind would fit, each kind alone."""

    capacities: Mapping[str, int]


Usable = Callable[[Room], bool]


def place(
    view: ClusterView,
    demands: Sequence[Demand],
    topology_keys: Sequence[str] = (),
    usable: Usable | None = None,
) -> Placement | NoFit:
    """Place all, or as many as fit but no fewer than the least of each; `usable` keeps off some nodes."""
    groups = _groups(view, demands, usable)
    most = capacities(groups, demands)
    if any(count < each.least for count, each in zip(most, demands, strict=True)):
        return _no_fit(demands, most)
    clipped = [each.reduced_to(min(each.count, count)) for each, count in zip(demands, most, strict=True)]
    return _fullest(groups, clipped, topology_keys) or _no_fit(demands, most)


def replace_member(
    view: ClusterView, demand: Demand, exclude: Collection[str] = (), near: Collection[str] = ()
) -> str | None:
    """Another node for one pod: one of `near` (where its siblings are) if possible, the one that is left with least."""
    one = replace(demand, count=1, least=1)
    for names in (near, None):
        usable = _allowed(names, exclude)
        placement = place(view, [one], usable=usable)
        if isinstance(placement, Placement):
            return next(iter(placement.node_of.values()))
    return None


def _allowed(names: Collection[str] | None, exclude: Collection[str]) -> Usable:
    return lambda room: room.name not in exclude and (names is None or room.name in names)


def fits_on(rooms: Iterable[Room], demands: Sequence[Demand], free: Callable[[Room], Mapping[str, int]]) -> bool:
    """Whether the least of a gang fits on nodes in another state than they are in, such as empty.

    Nodes count also while they are not ready or cordoned.
    """
    masked = ((tuple(each.constraint.could_suit(room.node) for each in demands), room) for room in rooms)
    groups = _gathered((suits, free(room), room.name) for suits, room in masked if any(suits))
    return pack(groups, [each.reduced_to(each.least) for each in demands]) is not None


def _fullest(groups: Sequence[Group], demands: list[Demand], keys: Sequence[str]) -> Placement | None:
    """All of the demands, else for one kind after another as many as fit beside the least of those that follow."""
    placement = _local(groups, demands, keys)
    if placement is not None or all(each.least == each.count for each in demands):
        return placement
    reduced = [each.reduced_to(each.least) for each in demands]
    if _local(groups, reduced, keys) is None:
        return None
    for index, demand in enumerate(demands):
        low, high = demand.least, demand.count
        while low < high:
            middle = (low + high + 1) // 2
            reduced[index] = demand.reduced_to(middle)
            low, high = (middle, high) if pack(groups, reduced) is not None else (low, middle - 1)
        reduced[index] = demand.reduced_to(low)
    return _local(groups, reduced, keys)


def _local(groups: Sequence[Group], demands: Sequence[Demand], keys: Sequence[str]) -> Placement | None:
    steps = pack(groups, demands)
    return None if steps is None else _named(steps, demands)


def _named(steps: Iterable[Step], demands: Sequence[Demand]) -> Placement:
    """Members by their numbers: neighbours stay together."""
    placed = [0] * len(demands)
    node_of: dict[str, str] = {}
    for step in steps:
        for index, count in enumerate(step.counts):
            for number in range(placed[index], placed[index] + count):
                node_of[f"{demands[index].name}-{number}"] = step.node
            placed[index] += count
    return Placement(node_of, {each.name: count for each, count in zip(demands, placed, strict=True)})


def _no_fit(demands: Sequence[Demand], most: Sequence[int]) -> NoFit:
    return NoFit({each.name: count for each, count in zip(demands, most, strict=True)})


def _groups(view: ClusterView, demands: Sequence[Demand], usable: Usable | None) -> list[Group]:
    """The nodes that suit any of the demands, those that are alike together."""
    constraints = list(dict.fromkeys(each.constraint for each in demands))
    if len(constraints) == 1:
        return _one_pool(view, constraints[0], len(demands), usable)
    suited = {each: view.pool(each) for each in constraints}
    masks: dict[str, list[bool]] = {}
    rooms: dict[str, Room] = {}
    for index, each in enumerate(demands):
        for group in suited[each.constraint].groups.values():
            for name, room in group.items():
                rooms[name] = room
                masks.setdefault(name, [False] * len(demands))[index] = True
    kept = rooms.values() if usable is None else filter(usable, rooms.values())
    return _gathered((tuple(masks[room.name]), room.free, room.name) for room in kept)


def _one_pool(view: ClusterView, constraint: Constraint, count: int, usable: Usable | None) -> list[Group]:
    """The same where all demands suit the same nodes: their pool is in groups already."""
    suits = (True,) * count
    found: list[Group] = []
    for group in view.pool(constraint).groups.values():
        names = sorted(group if usable is None else (name for name, room in group.items() if usable(room)))
        if names:
            found.append(Group(suits, group[names[0]].free, names))
    return found


def _gathered(nodes: Iterable[tuple[tuple[bool, ...], Mapping[str, int], str]]) -> list[Group]:
    groups: dict[object, tuple[tuple[bool, ...], Mapping[str, int], list[str]]] = {}
    for suits, free, name in nodes:
        groups.setdefault((suits, tuple(free.items())), (suits, free, []))[2].append(name)
    return [Group(suits, free, sorted(names)) for suits, free, names in groups.values()]
