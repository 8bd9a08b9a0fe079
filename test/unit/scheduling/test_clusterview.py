"""The books of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from helpers.gangs import a_node, a_pod, a_view, workers
from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodeinfo import FreedCapacity, nodes_without_capacity
from tfjob_controller.scheduling.placement import Placement, place
from tfjob_controller.scheduling.podsets import pod_set_of
from tfjob_controller.scheduling.whatif import WhatIfView

GANG = "ns/g"
SOON = "2026-11-21T12:00:30Z"
ONE_CPU = {"worker": {"cpu": 1000, "pods": 1}}


def cpu(view: ClusterView, node: str = "n") -> int:
    return view.free(node)["cpu"]


def reserved(*members: str, attempt: int = 1) -> ClusterView:
    view = a_view(a_node("n"), a_node("m"))
    view.reserve(GANG, dict.fromkeys(members, "n"), ONE_CPU, attempt=attempt)
    return view


def test_a_member_is_not_counted_twice_when_its_pod_is_bound() -> None:
    view = reserved("worker-0")
    view.set_pod(a_pod("p", "n", gang="g", member="worker-0"))
    assert cpu(view) == 7000
    assert view.statistics().uncovered_members == 0


def test_capacity_is_kept_for_the_replacement_of_a_pod_that_goes() -> None:
    view = reserved("worker-0")
    view.set_pod(a_pod("p", "n", gang="g", member="worker-0"))
    view.remove_pod("ns/p")
    assert cpu(view) == 7000
    assert view.statistics().reserved == {"cpu": 1000, "pods": 1}


@pytest.mark.parametrize(
    ("node", "attempt", "member", "free"),
    [
        pytest.param("n", 2, "worker-0", 6000, id="an old attempt"),
        pytest.param("n", 1, "worker-1", 6000, id="another member"),
        pytest.param("m", 1, "worker-0", 7000, id="another node"),
    ],
)
def test_a_pod_that_was_not_reserved_for_counts_beside_the_reservation(
    node: str, attempt: int, member: str, free: int
) -> None:
    view = reserved("worker-0")
    view.set_pod(a_pod("p", node, gang="g", member=member, attempt=attempt))
    assert cpu(view) == free
    assert view.statistics().uncovered_members == 1


@pytest.mark.parametrize(("cpu", "full"), [(7000, set()), (7001, {"n"})])
def test_foreign_pods_are_kept_off_reserved_capacity(cpu: int, full: set[str]) -> None:
    view = reserved("worker-0")
    assert nodes_without_capacity(view.node_infos, ["n", "unknown"], [("cpu", cpu)]) == full


def test_without_gangs_only_foreign_pods_count() -> None:
    view = reserved("worker-0")
    view.set_pod(a_pod("p", "n", "2"))
    view.set_pod(a_pod("q", "n", "3", gang="g", member="worker-7"))
    assert view.free_without_gangs("n")["cpu"] == 6000


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda view: view.set_node(a_node("n")), id="a node that is the same"),
        pytest.param(lambda view: view.set_pod(a_pod("p", "n", phase="Pending")), id="a pod that is the same"),
        pytest.param(lambda view: view.remove_pod("ns/x"), id="an unknown pod"),
        pytest.param(lambda view: view.remove_node("x"), id="an unknown node"),
        pytest.param(lambda view: view.unreserve("ns/x"), id="an unknown gang"),
        pytest.param(lambda view: view.unreserve_member("ns/x", "worker-0"), id="an unknown member"),
    ],
)
def test_what_changes_nothing_is_no_change(act: Callable[[ClusterView], None]) -> None:
    view = a_view(a_node("n"))
    view.set_pod(a_pod("p", "n"))
    before = view.version, view.nodes_version
    act(view)
    assert (view.version, view.nodes_version) == before


def test_changes_tell_what_was_and_what_is() -> None:
    view = a_view(a_node("n"))
    version = view.version
    view.set_pod(a_pod("p", "n"))
    view.remove_node("n")
    changes = view.changes_since(version)
    assert changes is not None
    first, second = changes
    assert (first.before, first.after) != (None, None)
    assert first.before is not None
    assert (first.before.free["cpu"], second.after) == (8000, None)
    assert view.changes_since(view.version) == []


def test_changes_of_long_ago_are_forgotten() -> None:
    view = a_view(a_node("n"))
    version = view.version
    for _ in range(3000):
        view.set_pod(a_pod("p", "n"))
        view.remove_pod("ns/p")
    assert view.changes_since(version) is None


def test_an_invalid_quantity_counts_as_zero() -> None:
    view = a_view(a_node("n", cpu="many"))
    assert "cpu" not in view.free("n")


def ending_pod(name: str, *, gang: str = "", member: str = "", node: str = "n") -> ScheduledPod:
    pod = a_pod(name, node, gang=gang, member=member)
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=SOON))


def test_terminating_pods_are_known_until_they_have_ended() -> None:
    view = a_view(a_node("n"))
    view.set_pod(a_pod("p", "n"))
    assert list(view.terminating_pods()) == []
    view.set_pod(ending_pod("p"))
    assert list(view.terminating_pods()) == [("n", {"cpu": 1000, "pods": 1}, SOON)]
    assert cpu(view) == 7000
    view.remove_pod("ns/p")
    assert list(view.terminating_pods()) == []


def test_one_that_has_finished_leaves_nothing_to_come() -> None:
    view = a_view(a_node("n"))
    view.set_pod(ending_pod("p"))
    pod = ending_pod("p")
    view.set_pod(replace(pod, status=replace(pod.status, phase="Succeeded")))
    assert list(view.terminating_pods()) == []


def test_a_terminating_pod_whose_capacity_is_reserved_for_its_replacement_frees_none() -> None:
    view = reserved("worker-0")
    view.set_pod(ending_pod("p", gang="g", member="worker-0"))
    view.set_pod(ending_pod("q", gang="g", member="worker-1"))
    assert [amounts["cpu"] for _, amounts, _ in view.terminating_pods()] == [1000]
    view.unreserve(GANG)
    assert len(list(view.terminating_pods())) == 2


def test_utilization_is_the_share_of_bound_pods_without_reservations() -> None:
    view = reserved("worker-0")
    assert view.utilization()["cpu"] == 0
    view.set_pod(a_pod("p", "m", "4"))
    assert view.utilization()["cpu"] == 0.25
    view.set_pod(a_pod("w", "n", "1", gang="g", member="worker-0"))
    assert view.utilization()["cpu"] == 0.3125
    assert ClusterView().utilization() == {}


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
    assert place(view, [pod_set]) is None
    supposed = WhatIfView(view, [FreedCapacity("m", {"cpu": 1000}), FreedCapacity("m", {"cpu": 1000, "pods": 1})])
    found = place(supposed, [pod_set])
    assert isinstance(found, Placement)
    assert set(found.node_of.values()) == {"m"}
    assert (supposed.node_infos["m"].free["cpu"], supposed.node_infos["n"].free["cpu"]) == (2000, 0)
    assert (view.version, view.free("m")["cpu"]) == (version, 0)
    assert place(view, [pod_set]) is None


def test_nodes_that_become_alike_stand_together() -> None:
    view = a_view(a_node("n", "2"), a_node("m", "2"))
    view.reserve("ns/g", {"worker-0": "n"}, TWO, attempt=1)
    pod_set = pod_set_of(workers(4))
    supposed = WhatIfView(view, [FreedCapacity("n", {"cpu": 2000, "pods": 1})])
    (group,) = supposed.candidates(pod_set.node_filter).groups.values()
    assert set(group) == {"n", "m"}
    assert [len(group) for group in view.candidates(pod_set.node_filter).groups.values()] == [1, 1]


def test_capacity_on_a_deleted_or_cordoned_node_does_not_count() -> None:
    freed = [FreedCapacity("gone", {"cpu": 2000}), FreedCapacity("closed", {"cpu": 2000})]
    assert place(WhatIfView(full(), freed), [pod_set_of(workers(1))]) is None
