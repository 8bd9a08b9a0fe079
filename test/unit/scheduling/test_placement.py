"""Where a gang goes."""

from __future__ import annotations

import pytest

from helpers.gangs import GPU, a_node, a_pod, a_view, workers
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.gang import Member, NodePlacement
from tfjob_controller.scheduling.placement import Placement, find_member_node, place, placement_by_node
from tfjob_controller.scheduling.podsets import PodSet, pod_set_of


def placed(nodes: list[Node], *pod_sets: PodSet, keys: tuple[str, ...] = ()) -> dict[str, list[str]]:
    found = place(a_view(*nodes), pod_sets, keys)
    assert isinstance(found, Placement)
    return {each.node: list(each.members) for each in placement_by_node(found.node_of)}


def of(member: Member, least: int | None = None) -> PodSet:
    return pod_set_of(member, least)


def zoned(name: str, zone: str, rack: str = "", cpu: str = "4") -> Node:
    return a_node(name, cpu, labels={"zone": zone} | ({"rack": rack} if rack else {}))


def test_all_go_to_one_node_if_one_can_take_them() -> None:
    nodes = [a_node("a", "3"), a_node("b", "4"), a_node("c", "8")]
    assert placed(nodes, of(workers(3)), of(workers(1, name="ps"))) == {
        "b": ["worker-0", "worker-1", "worker-2", "ps-0"]
    }


def test_else_to_the_fewest_nodes_and_the_last_is_left_with_least() -> None:
    nodes = [a_node("a", "3"), a_node("b", "6"), a_node("c", "1"), a_node("d", "2")]
    assert placed(nodes, of(workers(8))) == {
        "b": [f"worker-{n}" for n in range(6)],
        "d": ["worker-6", "worker-7"],
    }


def test_ties_are_broken_by_name() -> None:
    assert placed([a_node("c"), a_node("a"), a_node("b")], of(workers(2))) == {"a": ["worker-0", "worker-1"]}


def test_a_parameter_server_goes_to_the_node_with_most_of_its_workers() -> None:
    nodes = [a_node("a", "20", gpu="2"), a_node("b", "20", gpu="4"), a_node("c", "20")]
    found = placed(nodes, of(workers(1, name="ps")), of(workers(6, resources={GPU: "1"})))
    assert found["b"] == ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]
    assert found["a"] == ["worker-4", "worker-5"]


def test_many_parameter_servers_are_spread_with_the_workers() -> None:
    found = placed([a_node("a", "6"), a_node("b", "6")], of(workers(4, name="ps")), of(workers(8)))
    assert [sum(each.startswith("ps") for each in members) for members in found.values()] == [2, 2]


def test_pods_without_gpus_run_on_nodes_without_gpus() -> None:
    assert list(placed([a_node("a", gpu="4"), a_node("b")], of(workers(2)))) == ["b"]


@pytest.mark.parametrize(
    ("count", "keys", "nodes"),
    [
        pytest.param(8, ("zone",), {"b1", "b2"}, id="one zone can take all"),
        pytest.param(8, (), {"a1", "b3"}, id="without a key the largest comes first"),
        pytest.param(13, ("zone",), {"a1", "b1", "b2"}, id="no zone can take all"),
        pytest.param(7, ("zone", "rack"), {"b1", "b2"}, id="one rack of the zone can take all"),
        pytest.param(5, ("zone",), {"a1"}, id="one node is better than any domain"),
        pytest.param(7, ("nothing",), {"a1", "b3"}, id="a label that nobody has"),
    ],
)
def test_within_one_domain_if_one_can_take_all(count: int, keys: tuple[str, ...], nodes: set[str]) -> None:
    cluster = [
        zoned("a1", "a", cpu="5"),
        zoned("b1", "b", "x"),
        zoned("b2", "b", "x"),
        zoned("b3", "b", "y", cpu="3"),
    ]
    assert set(placed(cluster, of(workers(count)), keys=keys)) == nodes


def test_several_kinds_share_what_there_is_in_the_order_of_the_spec() -> None:
    found = place(a_view(a_node("a", "6")), [of(workers(4, name="ps"), 1), of(workers(8), 3)])
    assert isinstance(found, Placement)
    assert found.counts == {"ps": 3, "worker": 3}


def test_a_node_with_too_much_on_it_takes_nobody() -> None:
    view = a_view(a_node("a", "1"))
    view.set_pod(a_pod("p", "a", "4"))
    assert place(view, [of(workers(1))]) is None


def test_a_gang_of_none_fits_anywhere() -> None:
    assert place(a_view(), [of(workers(0))]) == Placement({}, {"worker": 0})


def test_only_usable_nodes_are_used() -> None:
    view = a_view(a_node("a", "1"), a_node("b", "1"))
    found = place(view, [of(workers(1))], allowed=lambda room: room.name != "a")
    assert isinstance(found, Placement)
    assert placement_by_node(found.node_of) == (NodePlacement("b", ("worker-0",)),)


@pytest.mark.parametrize(
    ("exclude", "near", "node"),
    [
        pytest.param((), (), "a", id="least left over"),
        pytest.param(("a",), (), "b", id="another node"),
        pytest.param((), ("c",), "c", id="near its siblings"),
        pytest.param(("a",), ("d",), "b", id="no room near them"),
        pytest.param(("a", "b", "c"), (), None, id="nowhere"),
    ],
)
def test_another_node_for_one_member(exclude: tuple[str, ...], near: tuple[str, ...], node: str | None) -> None:
    view = a_view(a_node("a", "1"), a_node("b", "2"), a_node("c", "3"), a_node("d", "0"))
    assert find_member_node(view, of(workers(5)), exclude, near) == node


def test_on_many_different_nodes_the_search_ends() -> None:
    """Each kind would fit alone, but both want the same half of the only nodes that have it."""
    nodes = [a_node(f"n{index:04}", f"{index + 1}m", gpu="1") for index in range(2000)]
    pod_sets = [of(workers(1500, "1m", resources={GPU: "1"})), of(workers(501, "1m", name="ps", resources={GPU: "1"}))]
    assert place(a_view(*nodes), pod_sets) is None
    few = [of(workers(1, "1m", name=name, resources={GPU: "1"}, node_selector={"zone": "a"})) for name in "abc"]
    lone = [a_node(f"z{index}", "1", gpu="1", labels={"zone": "a"}) for index in range(2)]
    assert place(a_view(*nodes, *lone), [*few, of(workers(1, "1m", resources={GPU: "1"}))]) is None
