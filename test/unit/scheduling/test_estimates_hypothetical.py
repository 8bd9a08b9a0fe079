"""The cluster as it could be."""

from __future__ import annotations

from datetime import timedelta

from helpers.gangs import NOW, a_node, a_pod, a_view, workers
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.estimates import HypotheticalCapacity
from tfjob_controller.scheduling.podsets import pod_set_of

FOUR = (pod_set_of(workers(4)),)


def standing_of(view: ClusterView) -> HypotheticalCapacity:
    standing = HypotheticalCapacity(view)
    standing.start_cycle(NOW)
    return standing


def busy(*nodes: Node) -> ClusterView:
    """One CPU is a foreign pod's, two are a gang's."""
    view = a_view(*nodes)
    view.set_pod(a_pod("foreign", "n", "1"))
    view.set_pod(a_pod("member", "n", "2", gang="g", member="worker-0"))
    return view


def test_an_empty_cluster_has_all_that_is_allocatable() -> None:
    assert standing_of(busy(a_node("n", "4"))).fits_empty(FOUR)
    assert not standing_of(busy(a_node("n", "3"))).fits_empty(FOUR)


def test_without_gangs_only_foreign_pods_are_in_the_way() -> None:
    assert standing_of(busy(a_node("n", "5"))).fits_without_gangs(FOUR)
    assert not standing_of(busy(a_node("n", "4"))).fits_without_gangs(FOUR)


def test_nodes_that_are_ill_or_cordoned_count() -> None:
    assert standing_of(busy(a_node("n", "4", ready="False", unschedulable=True))).fits_empty(FOUR)


def test_kinds_must_fit_together() -> None:
    pod_sets = (pod_set_of(workers(2)), pod_set_of(workers(3, name="ps")))
    assert not standing_of(busy(a_node("n", "4"))).fits_empty(pod_sets)


def test_nodes_that_come_are_seen_at_once() -> None:
    view = busy(a_node("n", "3"))
    standing = standing_of(view)
    assert not standing.fits_empty(FOUR)
    view.set_node(a_node("m", "1"))
    assert standing.fits_empty(FOUR)


def test_the_snapshot_without_gangs_is_kept_for_a_while() -> None:
    view = busy(a_node("n", "4"))
    standing = standing_of(view)
    assert not standing.fits_without_gangs(FOUR)
    view.remove_pod("ns/foreign")
    standing.start_cycle(NOW + timedelta(seconds=10))
    assert not standing.fits_without_gangs(FOUR)
    standing.start_cycle(NOW + timedelta(seconds=11))
    assert standing.fits_without_gangs(FOUR)


def test_in_one_cycle_one_gang_is_evaluated() -> None:
    standing = standing_of(busy(a_node("n")))
    assert [standing.may_evaluate(), standing.may_evaluate()] == [True, False]
    standing.start_cycle(NOW)
    assert standing.may_evaluate()
