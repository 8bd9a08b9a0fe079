"""What-if views: the cluster without some pods, and how many of them must be removed.

`WhatIfView` is a `ClusterView` with more free capacity on some nodes, and live placement runs on it unchanged.
`shortest_prefix` answers how many victims of an ordered list are enough.

Threads: as the view's, under the same lock.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tfjob_controller.api.common.podrequests import Amounts, add_amounts
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import CandidateNodes, FreedCapacity, NodeInfo
from tfjob_controller.scheduling.placement import Placement

_VictimT = TypeVar("_VictimT")


class WhatIfView:
    """A `NodeInfoLister` over a view that does not change meanwhile. Unknown nodes get no capacity."""

    def __init__(self, view: ClusterView, freed: Iterable[FreedCapacity]) -> None:
        self._view = view
        more: dict[str, dict[str, int]] = {}
        for each in freed:
            if each.node in view.node_infos:
                add_amounts(more.setdefault(each.node, {}), each.amounts)
        self._changed = {name: _with_more(view.node_infos[name], amounts) for name, amounts in more.items()}
        self._candidates: dict[NodeFilter, CandidateNodes] = {}

    @property
    def node_infos(self) -> Mapping[str, NodeInfo]:
        # A ChainMap writes to its first map only, which its type does not express.
        return ChainMap(self._changed, self._view.node_infos)  # type: ignore[arg-type]

    def candidates(self, node_filter: NodeFilter) -> CandidateNodes:
        """Returns the nodes that pass a filter."""
        if node_filter not in self._candidates:
            self._candidates[node_filter] = self._with_changes(self._view.candidates(node_filter))
        return self._candidates[node_filter]

    def _with_changes(self, nodes: CandidateNodes) -> CandidateNodes:
        changes = [(self._view.node_infos[name], info) for name, info in self._changed.items()]
        groups = dict(nodes.groups)
        for key in {info.free_key for change in changes for info in change}:
            if key in groups:
                groups[key] = dict(groups[key])
        candidates = CandidateNodes(nodes.node_filter, nodes.verdicts, groups)
        for old, new in changes:
            candidates.replace(old, new)
        return candidates


def _with_more(info: NodeInfo, amounts: Amounts) -> NodeInfo:
    free = {name: value + amounts.get(name, 0) for name, value in info.free.items()}
    return replace(info, free=free, free_key=tuple(free.items()))


def shortest_prefix(
    line: Sequence[_VictimT], try_placement: Callable[[Sequence[_VictimT]], Placement | None]
) -> tuple[Sequence[_VictimT], Placement] | None:
    """Returns the shortest prefix without which a gang fits, and its placement; None if all of `line` is not enough.

    The prefix doubles until it is enough: mostly few victims are, and longer prefixes take longer to try.
    """
    low, high = 0, min(1, len(line))
    placement = try_placement(line[:high])
    while placement is None:
        if high == len(line):
            return None
        low, high = high + 1, min(2 * high, len(line))
        placement = try_placement(line[:high])
    while low < high:
        middle = (low + high) // 2
        found = try_placement(line[:middle])
        if found is None:
            low = middle + 1
        else:
            high, placement = middle, found
    return line[:high], placement
