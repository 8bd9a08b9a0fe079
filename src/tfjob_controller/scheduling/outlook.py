"""How much of a gang the nodes could take now, kept up to date with little work.

For each kind of pod: how many would fit if there were no others, on how many nodes, and how many if only one resource
counted. That is an upper bound: where it is less than a gang needs, no placement need be tried. It changes by what the
changed nodes could take before and after, so that of thousands of gangs that wait each costs microseconds per event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.rooms import Room, RoomChange
from tfjob_controller.scheduling.view import ClusterView


@dataclass(slots=True)
class Tally:
    """Of one kind of pod: `by_resource` is in the order of the demand's amounts."""

    fits: int
    nodes: int
    by_resource: list[int]

    def frozen(self) -> tuple[int, ...]:
        return self.fits, self.nodes, *self.by_resource


class Outlook:
    """For one shape of gang. `may_have_grown` is set when room has come since it was last cleared."""

    def __init__(self, view: ClusterView, demands: Sequence[Demand]) -> None:
        self._view = view
        self._demands = demands
        self._version = view.version
        self.may_have_grown = True
        self.tallies = [self._counted(each) for each in demands]
        self._is_enough = self._judged()

    @property
    def is_enough(self) -> bool:
        """Whether the least of every kind would fit, each kind alone."""
        return self._is_enough

    def refresh(self) -> None:
        """Take in what has changed in the view."""
        view = self._view
        if self._version == view.version:
            return
        changes = view.changes_since(self._version)
        self._version = view.version
        if changes is None or len(changes) > len(view.rooms):
            self.tallies = [self._counted(each) for each in self._demands]
            self.may_have_grown = True
        else:
            for demand, tally in zip(self._demands, self.tallies, strict=True):
                self._adjust(demand, tally, changes)
        self._is_enough = self._judged()

    def _judged(self) -> bool:
        return all(tally.fits >= each.least for tally, each in zip(self.tallies, self._demands, strict=True))

    def figures(self) -> tuple[int, ...]:
        """All numbers: while they are equal, so is what can be said."""
        return tuple(number for tally in self.tallies for number in tally.frozen())

    def _counted(self, demand: Demand) -> Tally:
        tally = Tally(0, 0, [0] * len(demand.amounts))
        for group in self._view.pool(demand.constraint).groups.values():
            room = next(iter(group.values()))
            _count(tally, demand, room, len(group))
        return tally

    def _adjust(self, demand: Demand, tally: Tally, changes: Iterable[RoomChange]) -> None:
        objection = demand.constraint.objection
        for change in changes:
            before, after = change.before, change.after
            if before is not None and not objection(before.node):
                _count(tally, demand, before, -1)
            if after is not None and not objection(after.node):
                _count(tally, demand, after, 1)
                self.may_have_grown = self.may_have_grown or _has_grown(before, after)


def _count(tally: Tally, demand: Demand, room: Room, nodes: int) -> None:
    free = room.free
    least = -1
    for index, (name, amount) in enumerate(demand.amounts):
        fits = max(free.get(name, 0) // amount, 0)
        tally.by_resource[index] += fits * nodes
        least = fits if least < 0 else min(least, fits)
    if least > 0:
        tally.fits += least * nodes
        tally.nodes += nodes


def _has_grown(before: Room | None, after: Room) -> bool:
    """Whether anything could fit now that did not before."""
    if before is None or before.node is not after.node:
        return True
    return any(value > before.free.get(name, 0) for name, value in after.free.items())
