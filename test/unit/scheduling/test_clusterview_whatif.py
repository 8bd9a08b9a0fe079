"""The cluster as it would be if some pods were gone."""

from __future__ import annotations

from helpers.gangs import a_node, a_view, workers
from tfjob_controller.scheduling.clusterview import ClusterView, WhatIfView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import NoFit, Placement, place
from tfjob_controller.scheduling.podsets import pod_set_of

TWO = {"worker": {"cpu": 2000, "pods": 1}}


def full() -> ClusterView:
    """Two nodes of two CPUs each, both taken, and one that is closed."""
    view = a_view(a_node("n", "2"), a_node("m", "2"), a_node("closed", "2", unschedulable=True))
    view.reserve("ns/g", {"worker-0": "n", "worker-1": "m"}, TWO, attempt=1)
    return view


def test_what_is_freed_can_be_placed_on_and_the_view_does_not_change() -> None:
    view = full()
    version = view.version
    pod_set = pod_set_of(workers(2))
    assert isinstance(place(view, [pod_set]), NoFit)
    supposed = WhatIfView(view, [FreedCapacity("m", {"cpu": 1000}), FreedCapacity("m", {"cpu": 1000, "pods": 1})])
    found = place(supposed, [pod_set])
    assert isinstance(found, Placement)
    assert set(found.node_of.values()) == {"m"}
    assert (supposed.node_infos["m"].free["cpu"], supposed.node_infos["n"].free["cpu"]) == (2000, 0)
    assert (view.version, view.free("m")["cpu"]) == (version, 0)
    assert isinstance(place(view, [pod_set]), NoFit)


def test_nodes_that_become_alike_stand_together() -> None:
    view = a_view(a_node("n", "2"), a_node("m", "2"))
    view.reserve("ns/g", {"worker-0": "n"}, TWO, attempt=1)
    pod_set = pod_set_of(workers(4))
    supposed = WhatIfView(view, [FreedCapacity("n", {"cpu": 2000, "pods": 1})])
    (group,) = supposed.candidates(pod_set.node_filter).groups.values()
    assert set(group) == {"n", "m"}
    assert [len(group) for group in view.candidates(pod_set.node_filter).groups.values()] == [1, 1]


def test_room_on_a_node_that_is_gone_or_closed_helps_nobody() -> None:
    freed = [FreedCapacity("gone", {"cpu": 2000}), FreedCapacity("closed", {"cpu": 2000})]
    assert isinstance(place(WhatIfView(full(), freed), [pod_set_of(workers(1))]), NoFit)
