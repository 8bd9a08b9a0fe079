"""The cluster as it would be if some pods were gone."""

from __future__ import annotations

from helpers.gangs import a_node, a_view, workers
from tfjob_controller.scheduling.demand import demand_of
from tfjob_controller.scheduling.placement import NoFit, Placement, place
from tfjob_controller.scheduling.resizes import Ending
from tfjob_controller.scheduling.supposed import Supposed
from tfjob_controller.scheduling.view import ClusterView

TWO = {"worker": {"cpu": 2000, "pods": 1}}


def full() -> ClusterView:
    """Two nodes of two CPUs each, both taken, and one that is closed."""
    view = a_view(a_node("n", "2"), a_node("m", "2"), a_node("closed", "2", unschedulable=True))
    view.reserve("ns/g", {"worker-0": "n", "worker-1": "m"}, TWO, attempt=1)
    return view


def test_what_is_freed_can_be_placed_on_and_the_view_does_not_change() -> None:
    view = full()
    version = view.version
    demand = demand_of(workers(2))
    assert isinstance(place(view, [demand]), NoFit)
    supposed = Supposed(view, [Ending("m", {"cpu": 1000}), Ending("m", {"cpu": 1000, "pods": 1})])
    found = place(supposed, [demand])
    assert isinstance(found, Placement)
    assert set(found.node_of.values()) == {"m"}
    assert (supposed.rooms["m"].free["cpu"], supposed.rooms["n"].free["cpu"]) == (2000, 0)
    assert (view.version, view.free("m")["cpu"]) == (version, 0)
    assert isinstance(place(view, [demand]), NoFit)


def test_nodes_that_become_alike_stand_together() -> None:
    view = a_view(a_node("n", "2"), a_node("m", "2"))
    view.reserve("ns/g", {"worker-0": "n"}, TWO, attempt=1)
    demand = demand_of(workers(4))
    supposed = Supposed(view, [Ending("n", {"cpu": 2000, "pods": 1})])
    (group,) = supposed.pool(demand.constraint).groups.values()
    assert set(group) == {"n", "m"}
    assert [len(group) for group in view.pool(demand.constraint).groups.values()] == [1, 1]


def test_room_on_a_node_that_is_gone_or_closed_helps_nobody() -> None:
    freed = [Ending("gone", {"cpu": 2000}), Ending("closed", {"cpu": 2000})]
    assert isinstance(place(Supposed(full(), freed), [demand_of(workers(1))]), NoFit)
