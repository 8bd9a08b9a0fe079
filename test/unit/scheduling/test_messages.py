"""The words that a user reads while a gang waits."""

from __future__ import annotations

import pytest

from helpers.gangs import GPU, NOW, a_gang, a_node, a_pod, a_view, decide_once, workers
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.gang import Member, Missing
from tfjob_controller.scheduling.decisions import AdmissionPolicy, Pending

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
            "needs 4 x nvidia.com/gpu: 1, cpu: 1; 3 nodes have room, 1 more needed",
            (),
            id="a node too few",
        ),
        pytest.param(
            [a_node("n", "4")],
            {"n": "3500m"},
            (workers(1),),
            "needs 1 x cpu: 1; no node has room",
            (Missing("cpu", "1", "0"),),
            id="no room at all",
        ),
        pytest.param(
            [a_node("n", "1"), a_node("m", ready="False"), a_node("o", unschedulable=True)],
            {"n": "1"},
            (workers(1),),
            "needs 1 x cpu: 1; no node has room (1 not ready, 1 unschedulable)",
            (Missing("cpu", "1", "0"),),
            id="nodes that do not suit now",
        ),
        pytest.param(
            [a_node("n", "4")],
            {"n": "1"},
            (workers(1, "3", name="ps"), workers(1)),
            "needs 1 x cpu: 3 and 1 x cpu: 1; there is room for each kind of pod, but not for all together",
            (),
            id="not all together",
        ),
        pytest.param(
            [a_node("n", "4"), a_node("m", "4")],
            {"n": "4"},
            (workers(5), workers(6, "500m", name="ps")),
            "needs 5 x cpu: 1; 1 node has room for 4, 1 more needed",
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


def test_what_happens_to_be_free_beyond_whole_pods_is_not_told() -> None:
    first = waiting([a_node("n", "4")], {"n": "1500m"}, workers(3))
    assert waiting([a_node("n", "4")], {"n": "1800m"}, workers(3)) == first
