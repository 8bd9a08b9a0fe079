"""How much of a gang would fit, and when it is worth trying again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.gangs import a_node, a_pod, a_view, workers
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.estimates import CapacityEstimate
from tfjob_controller.scheduling.podsets import pod_set_of

DEMANDS = (pod_set_of(workers(4, "2", node_selector={"zone": "a"})),)


def busy() -> ClusterView:
    view = a_view(a_node("a", "8", labels={"zone": "a"}), a_node("b", "8"))
    view.set_pod(a_pod("p", "a", "3"))
    return view


def test_what_fits_is_counted_on_nodes_that_suit() -> None:
    outlook = CapacityEstimate(busy(), DEMANDS)
    (tally,) = outlook.estimates
    assert (tally.count, tally.nodes) == (2, 1)
    assert not outlook.is_sufficient


@pytest.mark.parametrize(
    ("act", "fits", "grown"),
    [
        pytest.param(lambda view: view.remove_pod("ns/p"), 4, True, id="a pod goes"),
        pytest.param(lambda view: view.set_pod(a_pod("q", "a", "4")), 0, False, id="a pod comes"),
        pytest.param(lambda view: view.set_pod(a_pod("q", "b", "4")), 2, False, id="on a node that does not suit"),
        pytest.param(lambda view: view.remove_node("a"), 0, False, id="a node goes"),
        pytest.param(lambda view: view.set_node(a_node("c", "2", labels={"zone": "a"})), 3, True, id="a node comes"),
        pytest.param(
            lambda view: view.set_node(a_node("b", "8", labels={"zone": "a"})), 6, True, id="a node now suits"
        ),
        pytest.param(
            lambda view: view.set_node(a_node("a", "8", labels={"zone": "b"})), 0, False, id="it no longer does"
        ),
    ],
)
def test_it_follows_what_changes(act: Callable[[ClusterView], None], fits: int, grown: bool) -> None:
    view = busy()
    outlook = CapacityEstimate(view, DEMANDS)
    outlook.has_grown = False
    act(view)
    outlook.refresh()
    assert (outlook.estimates[0].count, outlook.has_grown) == (fits, grown)
    assert outlook.fingerprint() == CapacityEstimate(view, DEMANDS).fingerprint()


def test_after_very_many_changes_all_is_counted_anew() -> None:
    view = busy()
    outlook = CapacityEstimate(view, DEMANDS)
    for _ in range(5000):
        view.set_pod(a_pod("q", "a", "1"))
        view.remove_pod("ns/q")
    view.remove_pod("ns/p")
    outlook.refresh()
    assert outlook.fingerprint() == CapacityEstimate(view, DEMANDS).fingerprint()
    assert outlook.is_sufficient
