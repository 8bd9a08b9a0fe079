"""Fair order: dominant shares and weights, and the order of gangs by them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from helpers.gangs import GPU, NOW, a_gang, a_node, a_pod, a_view, workers
from tfjob_controller.api.gang import Gang
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import AdmissionDecider, AdmissionPolicy, Admit, QueuedGang
from tfjob_controller.scheduling.fairshare import NamespaceShares, weight_in


def gang_in(namespace: str, name: str, count: int = 1, *, age: float = 0.0, priority: int = 0) -> Gang:
    gang = a_gang(name, workers(count), age_seconds=age, priority=priority)
    return replace(gang, metadata=replace(gang.metadata, namespace=namespace))


def reserve(view: ClusterView, key: str, node: str, requests: Mapping[str, int]) -> None:
    view.reserve(key, {"worker-0": node}, {"worker": requests}, attempt=1)


def ordered(view: ClusterView, gangs: list[Gang]) -> list[QueuedGang]:
    return AdmissionDecider(view, AdmissionPolicy(), shares=NamespaceShares(view)).ordered(gangs)


def test_the_dominant_share_is_the_largest_over_all_resources() -> None:
    view = a_view(a_node("a", "8", gpu="4"), a_node("b", "8"))
    reserve(view, "x/job", "a", {"cpu": 4000, GPU: 2, "pods": 1})
    shares = NamespaceShares(view, {"x": 2.0, "y": 1.0}.__getitem__)
    assert shares.share("x") == pytest.approx(0.25)
    assert shares.share("y") == 0.0


def test_a_resource_that_no_node_has_does_not_count() -> None:
    view = a_view(a_node("a", "8"))
    reserve(view, "x/job", "a", {GPU: 100, "cpu": 2000})
    assert NamespaceShares(view).share("x") == pytest.approx(0.25)


def test_a_pod_that_covers_its_reservation_counts_once() -> None:
    view = a_view(a_node("a", "8"))
    view.reserve("ns/job", {"worker-0": "a"}, {"worker": {"cpu": 1000, "pods": 1}}, attempt=1)
    assert view.usage("ns") == {"cpu": 1000, "pods": 1}
    view.set_pod(a_pod("p", "a", gang="job", member="worker-0"))
    assert view.usage("ns") == {"cpu": 1000, "pods": 1}
    view.set_pod(a_pod("p", "a", gang="job", member="worker-0", phase="Succeeded"))
    assert view.usage("ns") == {"cpu": 1000, "pods": 1}, "the replacement's capacity"
    view.unreserve("ns/job")
    assert view.usage("ns") == {}


def test_a_pod_without_a_gang_counts_until_it_has_finished() -> None:
    view = a_view(a_node("a", "8"))
    view.set_pod(a_pod("p", "a", "2"))
    assert view.usage("ns")["cpu"] == 2000
    view.set_pod(a_pod("p", "a", "2", phase="Failed"))
    assert not view.usage("ns")


def test_shares_follow_the_nodes() -> None:
    view = a_view(a_node("a", "8"), a_node("b", "8"))
    assert view.allocatable["cpu"] == 16000
    view.set_node(a_node("b", "4"))
    assert view.allocatable["cpu"] == 12000
    view.remove_node("a")
    assert view.allocatable["cpu"] == 4000


def test_the_smaller_share_comes_first_then_age_and_priority_before_both() -> None:
    view = a_view(a_node("a", "8"))
    reserve(view, "flood/running", "a", {"cpu": 1000})
    gangs = [
        gang_in("flood", "old", age=50),
        gang_in("flood", "urgent", priority=1),
        gang_in("small", "young", age=1),
        gang_in("small", "older", age=2),
    ]
    names = [each.gang.metadata.name for each in ordered(view, gangs)]
    assert names == ["urgent", "older", "young", "old"]


@pytest.mark.parametrize("small_has", [0, 3], ids=["the small namespace uses nothing", "it uses more than the flood"])
def test_a_large_gang_starts_against_a_flood_of_older_small_ones(small_has: int) -> None:
    """Each second one of the running gangs ends. The flood's share is then sometimes the smaller one, or equal."""
    view = a_view(*(a_node(f"n{index}", "1") for index in range(7)))
    requests = {"worker": {"cpu": 1000, "pods": 1}}
    for index in range(7):
        key = f"small/running-{index}" if index < small_has else f"flood/running-{index}"
        view.reserve(key, {"worker-0": f"n{index}"}, requests, attempt=1)
    running = [f"flood/running-{index}" for index in range(small_has, 7)]
    waiting = {f"flood/f{index}": gang_in("flood", f"f{index}", age=100) for index in range(60)}
    waiting["small/wide"] = gang_in("small", "wide", 4, age=40)
    decider = AdmissionDecider(view, AdmissionPolicy(), shares=NamespaceShares(view))
    for _ in range(30):
        for decision in decider.decide(list(waiting.values()), NOW):
            if isinstance(decision, Admit):
                del waiting[decision.gang_key]
                running.append(decision.gang_key)
        if "small/wide" not in waiting:
            return
        view.unreserve(running.pop(0))
    raise AssertionError("it starved")


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("2", 2.0),
        ("1000", 1000.0),
        ("12.500000", 12.5),
        ("", None),
        ("0", None),
        ("0.001", None),
        ("1000.1", None),
        ("1e3", None),
        (" 2", None),
        ("2\n", None),
        ("\u0662", None),
        ("9" * 10_000_000, None),
    ],
)
def test_a_weight_is_a_bounded_decimal_number(text: str, weight: float | None) -> None:
    assert weight_in(text) == weight
