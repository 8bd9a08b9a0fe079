"""Who gives members away for whom, and who grows."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.gangs import GPU, NOW, a_node, a_pod, workers
from helpers.scalingworld import SCALE, ScalingWorld, elastic
from tfjob_controller.api.gang import GangStatus, Member
from tfjob_controller.scheduling.autoscaling.autoscaler import plan_resizes
from tfjob_controller.scheduling.autoscaling.elasticgang import ResizePlan, elastic_gang_of
from tfjob_controller.scheduling.decisions import NominatedNodes
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.util.timestamps import format_micro_time

DOWN, UP = SCALE.scale_down_after_seconds, SCALE.scale_up_after_seconds
PS = Member("ps", 1, {"cpu": "1"})


def world(*cpus: int) -> ScalingWorld:
    """Nodes n0, n1 and so on."""
    return ScalingWorld(*(a_node(f"n{number}", str(cpu)) for number, cpu in enumerate(cpus)))


def members(*indexes: int) -> list[str]:
    return [f"worker-{index}" for index in indexes]


def wishes(plan: ResizePlan) -> dict[str, tuple[int, str]]:
    """Target and who leaves, by the gang's name."""
    return {
        each.key.removeprefix("ns/"): (
            each.target,
            " ".join(member.removeprefix("worker-") for member in each.leaving),
        )
        for each in plan.resizes
    }


def asked_for(world: ScalingWorld, *waiting: Member, **spec: Any) -> dict[str, tuple[int, str]]:
    """Who is asked to shrink once a gang of these members has waited for long enough."""
    world.arrives("next", *waiting, **spec)
    world.advance(DOWN)
    return wishes(world.plan())


@pytest.fixture
def full() -> ScalingWorld:
    """Four workers, of which two could go, fill a node; a gang of two waits for so long that they should."""
    world = ScalingWorld(a_node("n0", "4"))
    world.runs("big", [("n0", members(0, 1, 2, 3))], workers(4), **elastic(2, 4))
    world.arrives("next", workers(2))
    world.advance(DOWN)
    return world


def test_a_gang_that_waits_gets_capacity_from_one_that_has_more_than_its_minimum(full: ScalingWorld) -> None:
    plan = full.plan()
    assert wishes(plan) == {"big": (2, "2 3")}
    (wish,) = plan.resizes
    assert (wish.kind, wish.reason) == ("worker", "capacity for ns/next, waiting 30 s")
    assert plan.nominated == NominatedNodes("ns/next", frozenset({"n0"}))
    full.follow(plan.resizes)
    # From now on it is not for pods of no gang either.
    assert full.plan().nominated == NominatedNodes("ns/next", frozenset({"n0"}), {"n0": {"cpu": 2000, "pods": 2}})
    assert full.admit() == ["ns/next"]


def test_not_before_it_has_waited(full: ScalingWorld) -> None:
    full.advance(-1)
    assert full.plan() == ResizePlan(recheck_time=full.now + timedelta(seconds=1))


def test_the_resize_request_and_its_reason_stand_while_it_holds(full: ScalingWorld) -> None:
    first = full.plan()
    full.advance(17)
    assert full.plan() == first


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.waiting.clear(), id="the gang went away"),
        pytest.param(lambda world: world.view.set_node(a_node("n1", "2")), id="there is room now"),
        pytest.param(
            lambda world: world.ending.append(FreedCapacity("n0", {"cpu": 2000, "pods": 2})), id="room is coming"
        ),
        pytest.param(lambda world: world.view.remove_node("n0"), id="it helps no more"),
        pytest.param(lambda world: world.arrives("first", workers(5), priority=1), id="it comes first no more"),
    ],
)
def test_a_resize_request_that_holds_no_more_is_withdrawn(full: ScalingWorld, change: Any) -> None:
    assert full.plan().resizes
    change(full)
    # Time for a gang of a higher priority to be entitled to what there is.
    full.advance(DOWN)
    assert full.plan().resizes == ()


def test_a_gang_of_a_higher_priority_that_has_just_come_does_not_end_what_is_in_progress(full: ScalingWorld) -> None:
    plan = full.plan()
    full.arrives("first", workers(2), priority=1)
    assert full.plan().resizes == plan.resizes
    full.follow(plan.resizes)
    kept = full.plan().nominated
    assert kept is not None
    assert (kept.gang_key, kept.nodes) == ("ns/next", {"n0"})
    assert full.admit() == ["ns/next"]


def test_capacity_that_was_released_for_a_gang_stays_nominated_while_pods_terminate(full: ScalingWorld) -> None:
    full.follow(full.plan().resizes)
    # Its pods are ending.
    full.view.set_pod(a_pod("ends", "n0", "2"))
    full.ending.append(FreedCapacity("n0", {"cpu": 2000, "pods": 1}))
    full.arrives("first", workers(2), priority=1)
    full.advance(2 * DOWN)
    kept = full.plan().nominated
    assert kept is not None
    assert kept.gang_key == "ns/next"
    assert full.admit() == []
    full.view.remove_pod("ns/ends")
    full.ending.clear()
    full.plan()
    assert full.admit() == ["ns/next"]
    # And then it is the other's turn.
    full.runs("other", [("n0", members(0, 1))], workers(2), **elastic(1, 2))
    assert full.plan().nominated is None


def test_nobody_gives_for_a_gang_before_it_is_written_since_when_it_waits(full: ScalingWorld) -> None:
    gang = full.waiting["ns/next"]
    # A creation is known to the second only: the wish would be withdrawn when the moment is.
    created = replace(gang.metadata, creation_timestamp=gang.status.queued_time)
    full.waiting["ns/next"] = replace(gang, metadata=created, status=replace(gang.status, queued_time=None))
    assert full.plan() == ResizePlan()


def test_once_it_has_started_nothing_is_owed_to_those_behind_it(full: ScalingWorld) -> None:
    full.arrives("also", workers(1))
    full.advance(DOWN)
    full.follow(full.plan().resizes)
    full.plan()
    assert full.admit() == ["ns/next"]
    full.arrives("first", workers(1), priority=1)
    full.advance(DOWN)
    full.view.set_node(a_node("n1", "1"))
    full.plan()
    assert full.admit() == ["ns/first"]


def test_nothing_is_owed_where_that_gang_would_not_start_any_more(full: ScalingWorld) -> None:
    full.follow(full.plan().resizes)
    full.view.set_pod(a_pod("other", "n0", "1"))
    full.arrives("first", workers(1), priority=1)
    full.advance(DOWN)
    full.plan()
    assert full.admit() == ["ns/first"]


def test_but_nothing_is_begun_for_one_that_is_not_the_first() -> None:
    busy = world(4)
    busy.runs("big", [("n0", members(0, 1, 2, 3))], workers(4), **elastic(2, 4))
    busy.arrives("next", workers(2))
    busy.advance(DOWN)
    busy.arrives("first", workers(2), priority=1)
    assert busy.plan() == ResizePlan(recheck_time=busy.now + timedelta(seconds=DOWN))


@pytest.mark.parametrize("limits", [{"min_members": {"worker": 2}}, {"max_members": {"worker": 5}}])
def test_no_gang_without_a_minimum_and_a_maximum_is_requested_to_shrink(limits: dict[str, Any]) -> None:
    busy = world(4)
    busy.runs("big", [("n0", members(0, 1, 2, 3))], workers(4), **limits)
    assert asked_for(busy, workers(1)) == {}


def test_nor_of_one_that_is_finishing_or_being_resized(full: ScalingWorld) -> None:
    gang = full.running["ns/big"]
    for facts in ({"is_finishing": True}, {"is_changing": True}):
        found = elastic_gang_of(gang, **facts)
        assert found is not None
        assert not found.is_resizable
    for changed in (
        replace(gang, spec=replace(gang.spec, suspend=True)),
        replace(gang, metadata=replace(gang.metadata, deletion_timestamp=format_micro_time(NOW))),
        # Its owner has followed, its placement not yet.
        replace(gang, spec=replace(gang.spec, members=(workers(3),))),
    ):
        found = elastic_gang_of(changed)
        assert found is not None
        assert not found.is_resizable


def test_a_gang_that_may_not_be_resized_gets_no_request_and_its_request_is_withdrawn(full: ScalingWorld) -> None:
    assert full.plan().resizes
    (busy,) = full.elastic()
    for gang in (busy, dataclasses.replace(busy, target=busy.count, leaving=())):
        left_alone = dataclasses.replace(gang, is_resizable=False)
        assert plan_resizes(full.view, full.queue(), [left_alone], full.now, SCALE).resizes == ()
        assert plan_resizes(full.view, full.queue(), [gang], full.now, SCALE).resizes


def test_capacity_is_kept_too_while_an_owner_has_followed_and_its_placement_has_not(full: ScalingWorld) -> None:
    gang = full.running["ns/big"]
    full.running["ns/big"] = replace(gang, spec=replace(gang.spec, members=(workers(2),)))
    full.ending.append(FreedCapacity("n0", {"cpu": 2000, "pods": 2}))
    plan = full.plan()
    assert (plan.resizes, plan.nominated) == (
        (),
        NominatedNodes("ns/next", frozenset({"n0"}), {"n0": {"cpu": 2000, "pods": 2}}),
    )


def test_the_least_of_the_gang_that_waits_is_what_counts(full: ScalingWorld) -> None:
    full.waiting.clear()
    assert asked_for(full, workers(4), **elastic(1, 4)) == {"big": (3, "3")}


def test_all_of_it_must_fit_its_parameter_servers_too() -> None:
    busy = ScalingWorld(a_node("n0", "4", gpu="4"))
    gpu_workers = workers(3, cpu="1", resources={GPU: "1"})
    busy.runs("big", [("n0", ["ps-0", *members(0, 1, 2)])], PS, gpu_workers, **elastic(2, 4))
    assert asked_for(busy, PS, workers(1, cpu="1", resources={GPU: "1"})) == {}


def test_workers_away_from_the_parameter_servers_leave_first_then_the_highest() -> None:
    busy = world(4, 4)
    busy.runs("big", [("n0", ["ps-0", *members(1, 2, 3)]), ("n1", members(0, 4, 5))], PS, workers(6), **elastic(3, 8))
    busy.runs("rest", [("n1", members(0))], workers(1))
    assert asked_for(busy, workers(3)) == {"big": (3, "3 4 5")}


def test_without_parameter_servers_those_with_the_other_kinds_stay() -> None:
    busy = world(3, 3)
    master = Member("master", 1, {"cpu": "1"})
    busy.runs(
        "big", [("n0", members(0, 1, 2)), ("n1", ["master-0", *members(3, 4)])], master, workers(5), **elastic(3, 5)
    )
    assert asked_for(busy, workers(1)) == {"big": (4, "2")}


def test_nor_beside_them_where_there_are_some() -> None:
    busy = world(3, 3)
    master = Member("master", 1, {"cpu": "1"})
    placed = [("n0", ["ps-0", *members(3, 4)]), ("n1", ["master-0", *members(0, 1)])]
    busy.runs("big", placed, PS, master, workers(4), **elastic(3, 5))
    assert asked_for(busy, workers(1)) == {"big": (3, "1")}


def test_the_one_furthest_above_its_minimum_gives_first() -> None:
    busy = world(9)
    busy.runs("a", [("n0", members(0, 1, 2))], workers(3), **elastic(2, 4))
    busy.runs("b", [("n0", members(0, 1, 2, 3))], workers(4), **elastic(2, 4))
    busy.runs("c", [("n0", members(0, 1))], workers(2), **elastic(2, 4))
    assert asked_for(busy, workers(1)) == {"b": (3, "3")}
    busy.arrives("ahead", workers(2), priority=1)
    busy.advance(DOWN)
    assert wishes(busy.plan()) == {"a": (2, "2"), "b": (3, "3")}


def test_of_two_that_have_as_much_the_one_that_saved_its_work_last_gives_first() -> None:
    busy = world(6)
    for name, bound in (("a", "2026-11-21T11:00:00Z"), ("b", "2026-11-21T11:00:01Z")):
        busy.runs(name, [("n0", members(0, 1, 2))], workers(3), bound_time=bound, **elastic(2, 4))
    assert asked_for(busy, workers(1)) == {"b": (2, "2")}


def test_of_two_that_have_as_much_each_gives_a_half() -> None:
    busy = world(12)
    for name in ("a", "b"):
        busy.runs(name, [("n0", members(0, 1, 2, 3, 4, 5))], workers(6), **elastic(2, 6))
    assert asked_for(busy, workers(4)) == {"a": (4, "4 5"), "b": (4, "4 5")}


def test_members_of_the_lowest_priority_are_removed_first() -> None:
    busy = world(8)
    busy.runs("a", [("n0", members(0, 1, 2, 3))], workers(4), priority=1, **elastic(2, 4))
    busy.runs("b", [("n0", members(0, 1, 2, 3))], workers(4), **elastic(3, 10))
    assert asked_for(busy, workers(1), priority=2) == {"b": (3, "3")}


def test_members_are_taken_where_the_gang_that_waits_can_use_their_capacity() -> None:
    """It needs two CPUs on one node; the policy's own order takes one here and one there."""
    busy = world(4, 4)
    busy.runs("big", [("n0", members(0, 2, 4, 6)), ("n1", members(1, 3, 5, 7))], workers(8), **elastic(6, 8))
    busy.arrives("next", workers(1, cpu="2"))
    busy.advance(DOWN)
    (wish,) = busy.plan().resizes
    assert wish.target == 6
    busy.follow([wish])
    assert busy.admit() == ["ns/next"]


def test_if_neither_order_of_victims_is_enough_all_combinations_are_tried() -> None:
    """By the policy, and node by node, worker-2 goes first: then the other node still takes nobody."""
    two = world(3, 3)
    two.runs("big", [("n1", members(0, 1)), ("n0", members(2))], workers(3), **elastic(2, 3))
    assert asked_for(two, Member("worker", 2, {"cpu": "2"})) == {"big": (2, "1")}


def test_also_over_several_gangs_of_which_none_is_enough_alone() -> None:
    two = world(4, 4)
    two.runs("one", [("n1", members(0, 2)), ("n0", members(1))], workers(3), **elastic(2, 3))
    two.runs("two", [("n0", members(0, 1)), ("n1", members(2))], workers(3), **elastic(2, 3))
    assert asked_for(two, Member("worker", 2, {"cpu": "2"})) == {"one": (2, "2"), "two": (2, "1")}


def test_more_members_are_requested_when_the_standing_requests_are_no_longer_enough(full: ScalingWorld) -> None:
    full.view.set_node(a_node("n1", "4"))
    full.runs("other", [("n1", members(0, 1, 2, 3))], workers(4), **elastic(2, 4))
    assert full.plan().resizes
    # The gang that waits is another one now, which needs more.
    full.waiting.clear()
    assert asked_for(full, workers(4)) == {"big": (2, "2 3"), "other": (2, "2 3")}


def test_requests_to_victims_that_are_no_longer_needed_are_withdrawn(full: ScalingWorld) -> None:
    full.view.set_node(a_node("n1", "4"))
    full.runs("other", [("n1", members(0, 1, 2, 3))], workers(4), **elastic(2, 4))
    full.waiting.clear()
    full.arrives("next", workers(4))
    full.advance(DOWN)
    assert len(full.plan().resizes) == 2
    full.ending.append(FreedCapacity("n0", {"cpu": 2000, "pods": 2}))
    assert len(full.plan().resizes) == 1


def test_a_gang_that_backs_off_or_is_invalid_is_not_the_head(full: ScalingWorld) -> None:
    until = format_micro_time(full.now + timedelta(seconds=5))
    waiting = full.waiting.pop("ns/next")
    full.waiting["ns/next"] = replace(waiting, status=replace(waiting.status, requeue_time=until))
    assert full.plan().resizes == ()
    full.arrives("odd", workers(1, cpu="lots"), priority=9)
    full.advance(DOWN)
    assert wishes(full.plan()) == {"big": (2, "2 3")}


def test_nobody_waits_for_a_gang_that_no_empty_cluster_could_take(full: ScalingWorld) -> None:
    waiting = full.waiting["ns/next"]
    full.waiting["ns/next"] = replace(waiting, status=replace(waiting.status, phase="Unschedulable"))
    assert full.plan() == ResizePlan()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"target_members": {"worker": 1}, "leaving": ("worker-3",)},
        {"target_members": {"worker": -7}, "leaving": ("worker-9", "x")},
        {"target_members": {"worker": 2}, "leaving": ("worker-0", "worker-1")},
        {"target_members": {"king": 2}, "leaving": ("worker-2", "worker-3")},
    ],
)
def test_a_resize_request_that_was_edited_to_invalid_values_is_recreated(
    full: ScalingWorld, nonsense: dict[str, Any]
) -> None:
    gang = full.running["ns/big"]
    full.running["ns/big"] = replace(gang, status=replace(gang.status, **nonsense))
    assert wishes(full.plan()) == {"big": (2, "2 3")}


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"])
def test_times_that_were_edited_to_invalid_values_stop_nobody(moment: str) -> None:
    busy = world(8)
    busy.runs("big", [("n0", members(0, 1))], workers(2), last_resize_time=moment, bound_time=moment, **elastic(1, 4))
    assert wishes(busy.plan()) == {"big": (3, "")}
    busy.waiting["ns/odd"] = replace(
        busy.running["ns/big"],
        status=GangStatus(queued_time=moment),
        metadata=replace(busy.running["ns/big"].metadata),
    )
    busy.plan()


# Growing


@pytest.fixture
def idle() -> ScalingWorld:
    """Two gangs on a node with three CPUs to spare, and nothing has happened for long."""
    idle = ScalingWorld(a_node("n0", "8"))
    idle.runs("a", [("n0", members(0, 1, 2))], workers(3), **elastic(2, 4))
    idle.runs("b", [("n0", members(0, 1))], workers(2), **elastic(2, 4))
    return idle


def test_the_gang_least_above_its_minimum_grows_first_by_one(idle: ScalingWorld) -> None:
    plan = idle.plan()
    assert wishes(plan) == {"b": (3, "")}
    (wish,) = plan.resizes
    assert (wish.kind, wish.reason, wish.leaving) == ("worker", "the cluster has free capacity", ())


@pytest.mark.parametrize("target", [5, 1])
def test_a_resize_request_out_of_the_limits_is_none(idle: ScalingWorld, target: int) -> None:
    gang = idle.running["ns/a"]
    edited = replace(gang.status, target_members={"worker": target}, leaving=("worker-2",))
    idle.running["ns/a"] = replace(gang, status=edited)
    assert wishes(idle.plan()) == {"b": (3, "")}


def test_a_higher_priority_grows_first(idle: ScalingWorld) -> None:
    gang = idle.running["ns/a"]
    idle.running["ns/a"] = replace(gang, spec=replace(gang.spec, priority=1))
    assert wishes(idle.plan()) == {"a": (4, "")}


def test_the_next_only_after_a_while(idle: ScalingWorld) -> None:
    idle.round()
    idle.advance(UP - 1)
    assert idle.plan() == ResizePlan(recheck_time=idle.now + timedelta(seconds=1))
    idle.advance(1)
    assert idle.plan().resizes


def test_nobody_grows_while_a_gang_waits_or_just_after_one_has(idle: ScalingWorld) -> None:
    idle.arrives("next", workers(9))
    assert idle.plan().resizes == ()
    idle.waiting.clear()
    idle.waited_at = idle.now
    assert idle.plan() == ResizePlan(recheck_time=idle.now + timedelta(seconds=UP))


def test_nor_a_gang_that_was_bound_just_now(idle: ScalingWorld) -> None:
    gang = idle.running["ns/b"]
    idle.running["ns/b"] = replace(gang, status=replace(gang.status, bound_time=format_micro_time(idle.now)))
    assert wishes(idle.plan()) == {"a": (4, "")}


def test_members_that_are_already_requested_come_first(idle: ScalingWorld) -> None:
    gang = idle.running["ns/a"]
    idle.running["ns/a"] = replace(gang, spec=replace(gang.spec, members=(workers(4),)))
    assert idle.plan() == ResizePlan()


def test_a_resize_request_to_grow_stands_while_it_fits_and_nobody_else_is_asked(idle: ScalingWorld) -> None:
    first = idle.plan()
    # Somebody else's size was changed by hand, and its priority.
    gang = idle.running["ns/a"]
    status = replace(gang.status, last_resize_time=format_micro_time(idle.now))
    idle.running["ns/a"] = replace(gang, spec=replace(gang.spec, priority=1), status=status)
    assert idle.plan() == first
    idle.runs("c", [("n0", members(0, 1, 2))], workers(3))
    assert idle.plan().resizes == ()


# Indexed Jobs, whose indexes have no gaps: the highest leave first, whatever else would be better.

NODES_OF_FIVE = [("n0", members(0, 1, 2, 3)), ("n1", members(4))]


@pytest.mark.parametrize(
    ("is_indexed", "leaving"),
    [pytest.param(False, (3, "2 3"), id="a Job each"), pytest.param(True, (2, "2 3 4"), id="one Indexed Job")],
)
def test_of_an_indexed_job_those_above_the_ones_that_are_needed_leave_as_well(
    is_indexed: bool, leaving: tuple[int, str]
) -> None:
    crowded = world(4, 1)
    crowded.runs("big", NODES_OF_FIVE, workers(5, indexed=is_indexed), **elastic(1, 5))
    assert asked_for(crowded, workers(1, "2")) == {"big": leaving}


@pytest.mark.parametrize(
    ("is_indexed", "leaving"),
    [pytest.param(False, (3, "2"), id="a Job each"), pytest.param(True, (3, "3"), id="one Indexed Job")],
)
def test_an_indexed_job_keeps_its_lowest_indexes_wherever_its_servers_are(
    is_indexed: bool, leaving: tuple[int, str]
) -> None:
    crowded = world(3, 2)
    crowded.runs(
        "big",
        [("n0", members(0, 1, 2)), ("n1", ["ps-0", "worker-3"])],
        PS,
        workers(4, indexed=is_indexed),
        **elastic(2, 4),
    )
    assert asked_for(crowded, workers(1)) == {"big": leaving}


@pytest.mark.parametrize(
    ("is_indexed", "expected"),
    [pytest.param(False, {"big": (2, "1 2")}, id="a Job each"), pytest.param(True, {}, id="one Indexed Job")],
)
def test_no_plan_takes_members_from_the_middle_of_an_indexed_job(
    is_indexed: bool, expected: dict[str, tuple[int, str]]
) -> None:
    crowded = world(3, 1)
    crowded.runs("big", [("n0", members(0, 1, 2)), ("n1", members(3))], workers(4, indexed=is_indexed), **elastic(2, 4))
    assert asked_for(crowded, workers(1, "2")) == expected


def test_a_request_that_is_no_suffix_of_an_indexed_job_is_replaced() -> None:
    crowded = world(4)
    crowded.runs("big", [("n0", members(0, 1, 2, 3))], workers(4, indexed=True), **elastic(2, 4))
    assert asked_for(crowded, workers(2)) == {"big": (2, "2 3")}
    gang = crowded.running["ns/big"]
    edited = replace(gang.status, leaving=("worker-1", "worker-2"))
    crowded.running["ns/big"] = replace(gang, status=edited)
    assert wishes(crowded.plan()) == {"big": (2, "2 3")}
