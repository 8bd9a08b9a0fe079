"""Nodes for members of gangs that have theirs: another one, or one for a member that was added.

Pure but for the view, where the new room is reserved.

A node is not good any more if it is gone or does not suit, if it has less room than is reserved there (pods of another
scheduler came), or if kube-scheduler's own filters refused it: volumes, ports and pod affinity are what only they know.

Threads: as the view's, under the same lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tfjob_controller.api.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, Gang, kind_of, placed_nodes, wanted_members
from tfjob_controller.extender.lifecycle import is_bound, lives
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.demand import Demand, demands_understood, requests_by_member
from tfjob_controller.scheduling.elastic import anchors_of
from tfjob_controller.scheduling.placement import replace_member
from tfjob_controller.scheduling.view import ClusterView


def other_nodes(
    view: ClusterView, gang: Gang, pods: Mapping[str, ScheduledPod], refused: Mapping[str, Collection[str]]
) -> tuple[dict[str, str], bool]:
    """New nodes by member, reserved; only of members that are still to come, and for which there is room elsewhere.

    Also whether there are some for which there is none.

    `pods` are those of the current attempt, by member; `refused` the nodes that kube-scheduler refused for a member.
    """
    demands = {each.name: each for each in demands_understood(gang.spec)}
    nodes = placed_nodes(gang.status)
    found: dict[str, str] = {}
    near = set(nodes.values())
    # Kinds of which no node at all takes one more: thousands of members need not each find that out.
    hopeless: set[str] = set()
    is_any_left = False
    for member, node in nodes.items():
        demand = demands.get(kind_of(member))
        bad = refused.get(member, ())
        if (
            demand is None
            or not _is_awaited(gang, pods.get(member))
            or (node not in bad and _is_good(view, node, demand))
        ):
            continue
        other = None
        if demand.name not in hopeless:
            other = replace_member(view, demand, {node, *bad}, near)
        if other is None:
            is_any_left = True
            if demand.name not in hopeless and replace_member(view, demand) is None:
                hopeless.add(demand.name)
        else:
            view.reserve(key_of(gang), {member: other}, requests_by_member([demand]), attempt=gang.status.attempt)
            found[member] = other
    return found, is_any_left


def resized_nodes(view: ClusterView, gang: Gang, exclude: Collection[str] = ()) -> dict[str, str]:
    """The nodes of a bound gang as its spec is now: members that went are left out, new ones placed where they fit.

    One by one: a kind of which one does not fit waits, and the others go on. New ones are reserved; they come to its
    parameter servers if they can, and never to the nodes that are to `exclude`.
    """
    placed = placed_nodes(gang.status)
    wanted = wanted_members(gang)
    nodes = {member: placed[member] for member in wanted if member in placed}
    demands = {each.name: each for each in demands_understood(gang.spec)}
    for member in wanted:
        demand = demands.get(kind_of(member))
        if member in placed or demand is None:
            continue
        anchors = anchors_of(placed, demand.name)
        node = replace_member(view, demand, exclude, near=set(nodes.values()), nearest=anchors)
        if node is None:
            del demands[demand.name]
            continue
        view.reserve(key_of(gang), {member: node}, requests_by_member([demand]), attempt=gang.status.attempt)
        nodes[member] = node
    return nodes


def _is_awaited(gang: Gang, pod: ScheduledPod | None) -> bool:
    """Whether the member is still to come to its node; in a bound gang only one whose pod is there is."""
    if pod is None:
        return gang.status.phase == ADMITTED
    return lives(pod) and not is_bound(pod)


def _is_good(view: ClusterView, node: str, demand: Demand) -> bool:
    room = view.rooms.get(node)
    return (
        room is not None
        and not demand.constraint.objection(room.node)
        and all(room.free.get(name, 0) >= 0 for name, _ in demand.amounts)
    )
