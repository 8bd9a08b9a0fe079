"""How much of a gang would fit, and when it is worth trying again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from helpers.gangs import GPU, NOW, a_gang, a_node, a_pod, a_view, decide_once, workers
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.gang import Member, Missing
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import AdmissionPolicy, Pending
from tfjob_controller.scheduling.estimates import CapacityEstimate, HypotheticalCapacity
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
        pytest.param(lambda view: view.set_node(a_node("c", "2", labels={"zone": "a"})), 3, True, id="a node comes"),
        pytest.param(
            lambda view: view.set_node(a_node("b", "8", labels={"zone": "a"})), 6, True, id="a node now suits"
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


def test_after_very_many_changes_all_is_counted_again() -> None:
    view = busy()
    outlook = CapacityEstimate(view, DEMANDS)
    for _ in range(5000):
        view.set_pod(a_pod("q", "a", "1"))
        view.remove_pod("ns/q")
    view.remove_pod("ns/p")
    outlook.refresh()
    assert outlook.fingerprint() == CapacityEstimate(view, DEMANDS).fingerprint()
    assert outlook.is_sufficient


FOUR = (pod_set_of(workers(4)),)


def hypothetical_of(view: ClusterView) -> HypotheticalCapacity:
    standing = HypotheticalCapacity(view)
    standing.start_cycle(NOW)
    return standing


def busy_nodes(*nodes: Node) -> ClusterView:
    """One CPU is a foreign pod's, two are a gang's."""
    view = a_view(*nodes)
    view.set_pod(a_pod("foreign", "n", "1"))
    view.set_pod(a_pod("member", "n", "2", gang="g", member="worker-0"))
    return view


def test_an_empty_cluster_has_all_that_is_allocatable() -> None:
    assert hypothetical_of(busy_nodes(a_node("n", "4"))).fits_empty(FOUR)
    assert not hypothetical_of(busy_nodes(a_node("n", "3"))).fits_empty(FOUR)


def test_not_ready_and_cordoned_nodes_count() -> None:
    assert hypothetical_of(busy_nodes(a_node("n", "4", ready="False", unschedulable=True))).fits_empty(FOUR)


def test_nodes_that_come_are_seen_at_once() -> None:
    view = busy_nodes(a_node("n", "3"))
    standing = hypothetical_of(view)
    assert not standing.fits_empty(FOUR)
    view.set_node(a_node("m", "1"))
    assert standing.fits_empty(FOUR)


def test_the_snapshot_without_gangs_is_kept_for_a_while() -> None:
    view = busy_nodes(a_node("n", "4"))
    standing = hypothetical_of(view)
    assert not standing.fits_without_gangs(FOUR)
    view.remove_pod("ns/foreign")
    standing.start_cycle(NOW + timedelta(seconds=10))
    assert not standing.fits_without_gangs(FOUR)
    standing.start_cycle(NOW + timedelta(seconds=11))
    assert standing.fits_without_gangs(FOUR)


def test_in_one_cycle_one_gang_is_evaluated() -> None:
    standing = hypothetical_of(busy_nodes(a_node("n")))
    assert [standing.may_evaluate(), standing.may_evaluate()] == [True, False]
    standing.start_cycle(NOW)
    assert standing.may_evaluate()


GPU_NODES = [a_node(f"n{n}", "4", gpu="1") for n in range(4)]


def waiting(nodes: list[Node], busy: dict[str, str], *members: Member) -> Pending:
    """What a gang is told whose nodes are busy with another gang's pods, so many CPUs each."""
    view = a_view(*nodes)
    for node, cpu in busy.items():
        view.set_pod(a_pod(f"busy-{node}", node, cpu, gang="other", member=f"worker-{node}"))
    (decision,) = decide_once(view, [a_gang("a", *members)], NOW, AdmissionPolicy())
    assert isinstance(decision, Pending)
    return decision


@pytest.mark.parametrize(
    ("nodes", "busy", "members", "message", "missing"),
    [
        pytest.param(
            GPU_NODES,
            {"n0": "4"},
            (workers(4, "1", resources={GPU: "1"}),),
            "needs 4 x nvidia.com/gpu: 1, cpu: 1; 3 nodes have capacity, 1 more needed",
            (),
            id="a node too few",
        ),
        pytest.param(
            [a_node("n", "4")],
            {"n": "3500m"},
            (workers(1),),
            "needs 1 x cpu: 1; no node has capacity",
            (Missing("cpu", "1", "0"),),
            id="no room at all",
        ),
        pytest.param(
            [a_node("n", "1"), a_node("m", ready="False"), a_node("o", unschedulable=True)],
            {"n": "1"},
            (workers(1),),
            "needs 1 x cpu: 1; no node has capacity (1 not ready, 1 unschedulable)",
            (Missing("cpu", "1", "0"),),
            id="nodes that do not suit now",
        ),
        pytest.param(
            [a_node("n", "4")],
            {"n": "1"},
            (workers(1, "3", name="ps"), workers(1)),
            "needs 1 x cpu: 3 and 1 x cpu: 1; there is capacity for each kind of pod, but not for all together",
            (),
            id="not all together",
        ),
        pytest.param(
            [a_node("n", "4"), a_node("m", "4")],
            {"n": "4"},
            (workers(5), workers(6, "500m", name="ps")),
            "needs 5 x cpu: 1; 1 node has capacity for 4, 1 more needed",
            (Missing("cpu", "5", "4"),),
            id="only the kinds that lack room",
        ),
    ],
)
def test_why_a_gang_waits(
    nodes: list[Node], busy: dict[str, str], members: tuple[Member, ...], message: str, missing: tuple[Missing, ...]
) -> None:
    decision = waiting(nodes, busy, *members)
    assert decision.message == message.replace(" x ", " \u00d7 ")
    if missing:
        assert decision.missing == missing


def test_free_amounts_beyond_whole_pods_are_not_in_the_message() -> None:
    first = waiting([a_node("n", "4")], {"n": "1500m"}, workers(3))
    assert waiting([a_node("n", "4")], {"n": "1800m"}, workers(3)) == first
