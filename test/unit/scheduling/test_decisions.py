"""One pass over the queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from helpers.gangs import GPU, NOW, a_gang, a_node, a_pod, a_view, decide_once, workers
from tfjob_controller.api.common.cluster import Taint
from tfjob_controller.api.gang import Gang, GangStatus, Member, Missing
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    BACKING_OFF,
    EXCEEDS_CLUSTER_CAPACITY,
    HELD_BACK,
    INVALID_RESOURCES,
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    NominatedNodes,
    Pending,
    Unschedulable,
    queue_order,
)

POLICY = AdmissionPolicy()
OLD, YOUNG = 60.0, 1.0


def admitted(view: ClusterView, *gangs: Gang) -> list[str]:
    return [each.gang_key for each in decide_once(view, gangs, NOW, POLICY) if isinstance(each, Admit)]


def full(name: str = "n") -> ClusterView:
    """A node with four CPUs, two of which another gang has."""
    view = a_view(a_node(name, "4"))
    view.set_pod(a_pod("busy", name, "2", gang="other", member="worker-0"))
    return view


def test_a_gang_that_fits_is_admitted_and_reserved_in_the_same_step() -> None:
    view = a_view(a_node("n", "4"))
    (decision,) = decide_once(view, [a_gang("a", workers(3), status=GangStatus(attempt=2))], NOW, POLICY)
    assert isinstance(decision, Admit)
    assert (decision.gang_key, decision.attempt) == ("ns/a", 3)
    assert view.reserved_members("ns/a") == decision.placement.node_of
    assert view.free("n")["cpu"] == 1000


def test_two_gangs_never_get_a_half_each() -> None:
    view = a_view(a_node("n", "4"), a_node("m", "4"))
    gangs = [a_gang("a", workers(6)), a_gang("b", workers(6))]
    assert admitted(view, *gangs) == ["ns/a"]
    assert view.reserved_members("ns/b") == {}


def test_younger_gangs_may_start_before_one_that_does_not_fit_for_a_while() -> None:
    assert admitted(full(), a_gang("a", workers(4), age_seconds=5), a_gang("b", workers(2), age_seconds=YOUNG)) == [
        "ns/b"
    ]


def test_after_that_nothing_behind_it_uses_capacity_that_it_could_use() -> None:
    gangs = [a_gang("a", workers(4), age_seconds=OLD), a_gang("b", workers(2), age_seconds=YOUNG)]
    first, second = decide_once(full(), gangs, NOW, POLICY)
    assert isinstance(first, Pending)
    assert second == Pending("ns/b", 2, (), HELD_BACK, may_fit=True)


def test_capacity_that_a_starving_gang_could_not_use_is_free_for_all() -> None:
    view = full()
    view.set_node(a_node("gpu", "4", taints=(Taint("gpu", "", "NoSchedule"),)))
    tolerant = workers(2, tolerations=({"operator": "Exists"},))
    gangs = [a_gang("a", workers(4), age_seconds=OLD), a_gang("b", tolerant, age_seconds=YOUNG)]
    assert admitted(view, *gangs) == ["ns/b"]
    assert set(view.reserved_members("ns/b").values()) == {"gpu"}


def test_a_gang_that_foreign_pods_keep_out_holds_no_capacity() -> None:
    view = a_view(a_node("n", "4"))
    view.set_pod(a_pod("daemon", "n", "1"))
    gangs = [a_gang("a", workers(4), age_seconds=OLD), a_gang("b", workers(2), age_seconds=YOUNG)]
    assert admitted(view, *gangs) == ["ns/b"]


def test_a_gang_that_backs_off_keeps_its_position_but_holds_no_capacity() -> None:
    later = (NOW + timedelta(seconds=5)).isoformat()
    resting = a_gang("a", workers(1), age_seconds=OLD, status=GangStatus(requeue_time=later))
    first, second = decide_once(full(), [resting, a_gang("b", workers(2))], NOW, POLICY)
    assert first == Pending("ns/a", 1, (), BACKING_OFF, may_fit=True)
    assert isinstance(second, Admit)


def test_a_suspended_gang_is_not_looked_at() -> None:
    assert decide_once(full(), [a_gang("a", suspend=True)], NOW, POLICY) == []


def test_positions_count_the_waiting_gangs() -> None:
    gangs = [
        a_gang("a", workers(3), age_seconds=9),
        a_gang("b", workers(99), age_seconds=8),
        a_gang("c", workers(1), age_seconds=7),
        a_gang("d", workers(4), age_seconds=6),
    ]
    decisions = decide_once(full(), gangs, NOW, POLICY)
    assert [(each.gang_key, each.position) for each in decisions if isinstance(each, Pending)] == [
        ("ns/a", 1),
        ("ns/d", 2),
    ]


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((workers(5),), id="too many"),
        pytest.param((workers(1, "5"),), id="too large"),
        pytest.param((workers(1, resources={GPU: "1"}),), id="nobody has it"),
        pytest.param((workers(1, node_selector={"zone": "x"}),), id="no node suits"),
        pytest.param((workers(2, "2", name="ps"), workers(1)), id="not all together"),
        pytest.param((workers(100_000),), id="a nonsense number"),
    ],
)
def test_a_gang_that_exceeds_an_empty_cluster_is_unschedulable_at_once(members: tuple[Member, ...]) -> None:
    (decision,) = decide_once(full(), [a_gang("a", *members)], NOW, POLICY)
    assert isinstance(decision, Unschedulable)
    assert decision.reason == EXCEEDS_CLUSTER_CAPACITY


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((workers(1, "lots"),), "not a quantity: 'lots'"),
        ((workers(1, "-1"),), "negative quantity of cpu: '-1'"),
        ((workers(1), workers(2)), "two members have the same name"),
    ],
)
def test_an_invalid_gang_affects_no_other_gang(members: tuple[Member, ...], words: str) -> None:
    first, second = decide_once(full(), [a_gang("a", *members, age_seconds=9), a_gang("b")], NOW, POLICY)
    assert first == Unschedulable("ns/a", INVALID_RESOURCES, words)
    assert isinstance(second, Admit)


def test_a_negative_count_counts_as_zero() -> None:
    (decision,) = decide_once(full(), [a_gang("a", workers(-3))], NOW, POLICY)
    assert isinstance(decision, Admit)
    assert decision.placement.node_of == {}


def test_an_unchanged_situation_has_the_same_message_object() -> None:
    view = full()
    decider, gangs = AdmissionDecider(view, POLICY), [a_gang("a", workers(4))]
    first = decider.decide(gangs, NOW)
    assert first == [
        Pending(
            "ns/a", 1, (Missing("cpu", "4", "2"),), "needs 4 \u00d7 cpu: 1; 1 node has capacity for 2, 2 more needed"
        )
    ]
    view.set_pod(a_pod("small", "n", "0"))
    view.remove_pod("ns/small")
    assert decider.decide(gangs, NOW + timedelta(seconds=1)) == first


def test_a_changed_gang_is_read_again() -> None:
    decider = AdmissionDecider(full(), POLICY)
    assert isinstance(decider.decide([a_gang("a", workers(3))], NOW)[0], Pending)
    assert isinstance(decider.decide([a_gang("a", workers(2))], NOW)[0], Admit)


def kept_for(name: str, *nodes: str) -> NominatedNodes:
    return NominatedNodes(f"ns/{name}", frozenset(nodes))


def test_nominated_nodes_are_for_no_other_gang_of_any_position() -> None:
    first, keeper = a_gang("first", workers(2), priority=9), a_gang("keeper", workers(4))
    kept = kept_for("keeper", "n")
    words = {each.gang_key: each for each in decide_once(full(), [first, keeper], NOW, POLICY, kept)}
    assert isinstance(words["ns/first"], Pending)
    assert words["ns/first"].message == HELD_BACK
    view = a_view(a_node("n", "4"), a_node("m", "2"))
    decisions = decide_once(view, [first, keeper], NOW, POLICY, kept)
    found = {each.gang_key: set(each.placement.node_of.values()) for each in decisions if isinstance(each, Admit)}
    assert found == {"ns/first": {"m"}, "ns/keeper": {"n"}}


def test_a_gang_that_starves_does_not_keep_others_off_what_is_kept_for_them() -> None:
    starving = a_gang("starving", workers(5), priority=9, age_seconds=OLD)
    view = a_view(a_node("n", "4"), a_node("m", "4"))
    view.set_pod(a_pod("busy", "m", "4", gang="other", member="worker-0"))
    keeper = a_gang("keeper", workers(4))
    assert admitted(view, starving, keeper) == []
    decisions = decide_once(view, [starving, keeper], NOW, POLICY, kept_for("keeper", "n"))
    assert [each.gang_key for each in decisions if isinstance(each, Admit)] == ["ns/keeper"]


def test_gangs_with_equal_requests_are_tried_separately_if_nodes_are_nominated_for_one() -> None:
    twins = [a_gang("first", workers(2), priority=9), a_gang("keeper", workers(2))]
    decisions = decide_once(full(), twins, NOW, POLICY, kept_for("keeper", "n"))
    assert [each.gang_key for each in decisions if isinstance(each, Admit)] == ["ns/keeper"]
    decider = AdmissionDecider(full(), POLICY)
    decider.decide(twins[:1], NOW, kept_for("keeper", "n"))
    assert [type(each) for each in decider.decide(twins[:1], NOW)] == [Admit]


def moment(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("gangs", "order"),
    [
        pytest.param([a_gang("a", age_seconds=1), a_gang("b", age_seconds=2)], "ba", id="the older first"),
        pytest.param([a_gang("b"), a_gang("a")], "ab", id="then by name"),
        pytest.param([a_gang("a", age_seconds=9), a_gang("b", priority=1)], "ba", id="priority before age"),
        pytest.param([a_gang("a", suspend=True), a_gang("b")], "b", id="suspended ones do not wait"),
        pytest.param(
            [a_gang("a"), a_gang("b", status=GangStatus(queued_time=moment(-5)))],
            "ba",
            id="since it waits, if it says so",
        ),
        pytest.param(
            [a_gang("a", age_seconds=1), a_gang("b", age_seconds=2, status=GangStatus(queued_time="soon"))],
            "ba",
            id="nonsense is as if it were not there",
        ),
    ],
)
def test_order(gangs: list[Gang], order: str) -> None:
    assert [each.gang.metadata.name for each in queue_order(gangs)] == list(order)


@pytest.mark.parametrize(
    ("requeue_time", "rests"),
    [(None, False), (moment(1), True), (moment(0), False), (moment(-1), False), ("soon", False)],
)
def test_a_gang_backs_off_until_its_time(requeue_time: str | None, rests: bool) -> None:
    (queued,) = queue_order([a_gang("a", status=GangStatus(requeue_time=requeue_time))])
    assert queued.is_backing_off(NOW) is rests


@pytest.mark.parametrize(("age", "waited"), [(5.0, 5.0), (-5.0, 0.0)])
def test_how_long_it_has_waited(age: float, waited: float) -> None:
    (queued,) = queue_order([a_gang("a", age_seconds=age)])
    assert queued.waiting_seconds(NOW) == waited
