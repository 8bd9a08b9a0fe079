"""The cluster as it could be: empty, or without gangs. Answers what is not worth waiting for, or holding room for.

Nodes count here also while they are not ready or cordoned: they may come back. Groups of nodes are kept per set of
constraints until nodes change, since thousands of gangs ask the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta

from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.explain import objections
from tfjob_controller.scheduling.matching import Constraint
from tfjob_controller.scheduling.packing import Group, capacities, gathered, pack
from tfjob_controller.scheduling.rooms import Room
from tfjob_controller.scheduling.view import ClusterView

_Constraints = tuple[Constraint, ...]
# How old the picture of the cluster without gangs may be. Making it costs tens of milliseconds on thousands of nodes,
# and what it decides (who holds room for long) is nothing that a foreign pod more or less should turn around.
_PICTURE_AGE = timedelta(seconds=10)
# How many gangs are asked in one pass whether they would fit there; the others keep their old answers.
_ASKED_PER_PASS = 1


class Standing:
    """Over one view; threads as there."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._empty: tuple[Hashable, dict[_Constraints, list[Group]]] = (None, {})
        self._without_gangs: dict[_Constraints, list[Group]] = {}
        self._picture = 0
        self._picture_of: tuple[int, datetime] | None = None
        self._objections: tuple[Hashable, dict[Constraint, str]] = (None, {})
        self._left_to_ask = 0

    @property
    def picture(self) -> int:
        """Number of the picture of the cluster without gangs; answers from an older one are old."""
        return self._picture

    def start_pass(self, now: datetime) -> None:
        self._left_to_ask = _ASKED_PER_PASS
        known = self._picture_of
        if known is None or known[0] != self._view.nodes_version or abs(now - known[1]) > _PICTURE_AGE:
            self._picture_of = self._view.nodes_version, now
            self._picture += 1
            self._without_gangs = {}

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
        view = self._view
        return _fits(self._kept(self._without_gangs, demands, lambda room: view.without_gangs(room.name)), demands)

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
