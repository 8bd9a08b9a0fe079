"""The cluster as it would be with more room on some nodes: what a resize is tested on before anybody is told of it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tfjob_controller.api.podrequests import Amounts, add_amounts
from tfjob_controller.scheduling.matching import Constraint
from tfjob_controller.scheduling.resizes import Ending
from tfjob_controller.scheduling.rooms import Pool, Room
from tfjob_controller.scheduling.view import ClusterView


class Supposed:
    """`placement.Cluster` over a view that does not change meanwhile. Nodes that are not there get no room."""

    def __init__(self, view: ClusterView, freed: Iterable[Ending]) -> None:
        self._view = view
        more: dict[str, dict[str, int]] = {}
        for each in freed:
            if each.node in view.rooms:
                add_amounts(more.setdefault(each.node, {}), each.amounts)
        self._changed = {name: _with_more(view.rooms[name], amounts) for name, amounts in more.items()}
        self._pools: dict[Constraint, Pool] = {}

    @property
    def rooms(self) -> Mapping[str, Room]:
        # It only reads from what comes after the first map, which the type does not say.
        return ChainMap(self._changed, self._view.rooms)  # type: ignore[arg-type]

    def pool(self, constraint: Constraint) -> Pool:
        """The nodes that suit a constraint."""
        if constraint not in self._pools:
            self._pools[constraint] = self._made(self._view.pool(constraint))
        return self._pools[constraint]

    def _made(self, pool: Pool) -> Pool:
        changes = [(self._view.rooms[name], room) for name, room in self._changed.items()]
        groups = dict(pool.groups)
        for key in {room.key for change in changes for room in change}:
            if key in groups:
                groups[key] = dict(groups[key])
        made = Pool(pool.constraint, groups)
        for old, new in changes:
            made.replace(old, new)
        return made


def _with_more(room: Room, amounts: Amounts) -> Room:
    free = {name: value + amounts.get(name, 0) for name, value in room.free.items()}
    return replace(room, free=free, key=tuple(free.items()))
