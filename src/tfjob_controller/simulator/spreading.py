"""The node that kube-scheduler would choose for a single pod: a baseline, and no rule of the gang scheduler's.

Of the nodes that have room, the one of which least is requested (its default, NodeResourcesFit with LeastAllocated), or
most (MostAllocated). It scores CPU and memory, not GPUs; here CPU, of which workers and servers ask like shares
everywhere. Between equal nodes kube-scheduler throws dice; here the first by name is taken, so that runs can be
repeated.

Source: kubernetes 1.36 pkg/scheduler/framework/plugins/noderesources (least_allocated.go, most_allocated.go) and
apis/config/v1/default_plugins.go. Its other default scores are equal on nodes that are alike but for what they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from tfjob_controller.api.gang import kind_of
from tfjob_controller.scheduling.demand import Demand, requests_by_member
from tfjob_controller.scheduling.view import ClusterView


def node_for(view: ClusterView, demand: Demand, *, spread: bool, exclude: Set[str] = frozenset()) -> str | None:
    """None if no node has room for it but those that are to `exclude`."""
    best: tuple[float, str] | None = None
    for group in view.pool(demand.constraint).groups.values():
        room = next(iter(group.values()))
        if not demand.capacity(room.free):
            continue
        share = room.free["cpu"] / room.allocatable["cpu"]
        score = -share if spread else share
        if best is not None and score > best[0]:
            continue
        first = min((name for name in group if name not in exclude), default=None)
        if first is not None:
            best = (score, first) if best is None else min(best, (score, first))
    return None if best is None else best[1]


def spread_members(
    view: ClusterView, key: str, demands: Iterable[Demand], members: Iterable[str], attempt: int
) -> dict[str, str] | None:
    """Nodes for these members, one by one, reserved; None, and nothing is reserved, if one finds no room."""
    of_kind = {each.name: each for each in demands}
    node_of: dict[str, str] = {}
    for member in members:
        demand = of_kind[kind_of(member)]
        node = node_for(view, demand, spread=True)
        if node is None:
            for placed in node_of:
                view.release_member(key, placed)
            return None
        view.reserve(key, {member: node}, requests_by_member([demand]), attempt=attempt)
        node_of[member] = node
    return node_of
