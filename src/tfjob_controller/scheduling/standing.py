"""The cluster as it could be: empty, or without gangs. Answers what is not worth waiting for, or holding room for.

Nodes count here also while they are not ready or cordoned: they may come back. Groups of nodes are kept per set of
constraints until nodes (or foreign pods) change, since thousands of gangs ask the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.explain import objections
from tfjob_controller.scheduling.matching import Constraint
from tfjob_controller.scheduling.packing import Group, capacities, gathered, pack
from tfjob_controller.scheduling.view import ClusterView, Room

_Constraints = tuple[Constraint, ...]
# How many gangs are asked anew in one pass whether they could fit without the others; the rest keep their old answers.
_ASKED_PER_PASS = 4


class Standing:
    """Over one view; threads as there."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._empty: tuple[Hashable, dict[_Constraints, list[Group]]] = (None, {})
        self._without_gangs: tuple[Hashable, dict[_Constraints, list[Group]]] = (None, {})
        self._objections: tuple[Hashable, dict[Constraint, str]] = (None, {})
        self._left_to_ask = 0

    def start_pass(self) -> None:
        self._left_to_ask = _ASKED_PER_PASS

    def empty(self, demands: Sequence[Demand]) -> Sequence[Group]:
        """The nodes with all that they have."""
        version = self._view.nodes_version
        if self._empty[0] != version:
            self._empty = version, {}
        return self._kept(self._empty[1], demands, lambda room: room.allocatable)

    def fits_empty(self, demands: Sequence[Demand]) -> bool:
        return _fits(self.empty(demands), demands)

    def objections(self, constraint: Constraint) -> str:
        """How many nodes do not suit now, and why."""
        version = self._view.nodes_version
        if self._objections[0] != version:
            self._objections = version, {}
        found = self._objections[1]
        if constraint not in found:
            found[constraint] = objections(constraint, self._view.rooms.values())
        return found[constraint]

    def may_ask(self) -> bool:
        """Whether one more gang may be asked in this pass."""
        self._left_to_ask -= 1
        return self._left_to_ask >= 0

    def fits_without_gangs(self, demands: Sequence[Demand]) -> bool:
        """Whether it would fit if all gangs were gone and foreign pods stayed."""
        version = self._view.nodes_version, self._view.foreign_version
        if self._without_gangs[0] != version:
            self._without_gangs = version, {}
        view = self._view
        return _fits(self._kept(self._without_gangs[1], demands, lambda room: view.without_gangs(room.name)), demands)

    def _kept(
        self,
        cache: dict[_Constraints, list[Group]],
        demands: Sequence[Demand],
        free: Callable[[Room], Mapping[str, int]],
    ) -> list[Group]:
        constraints = tuple(each.constraint for each in demands)
        if constraints not in cache:
            masked = (
                (tuple(each.could_suit(room.node) for each in constraints), room) for room in self._view.rooms.values()
            )
            cache[constraints] = gathered((suits, free(room), room.name) for suits, room in masked if any(suits))
        return cache[constraints]


def _fits(groups: Sequence[Group], demands: Sequence[Demand]) -> bool:
    most = capacities(groups, demands)
    if any(count < each.least for count, each in zip(most, demands, strict=True)):
        return False
    return len(demands) == 1 or pack(groups, [each.reduced_to(each.least) for each in demands]) is not None
