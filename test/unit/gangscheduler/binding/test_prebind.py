"""What became of the nodes between the first member's filter and the last one's bind call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.api.gang import placed_nodes


@pytest.fixture
def world(is_indexed: bool) -> GangWorld:
    world = GangWorld(is_indexed=is_indexed)
    world.put_node("a", 4)
    return world


def start(world: GangWorld, name: str, workers: int, *, cpu: int = 0) -> None:
    """`cpu`: what its pods request, if that is not what the gang says."""
    world.add_gang(name, worker=workers)
    world.run()
    assert world.phase(name) == "Admitted"
    world.create_pods(name, cpu=cpu)


WORSE: dict[str, Callable[[GangWorld], None]] = {
    "a pod of another scheduler has come": lambda world: world.put_pod("stranger", {}, 2, node="a"),
    "the node is cordoned": lambda world: world.put_node("a", 4, unschedulable=True),
    "the node is gone": lambda world: world.remove_node("a"),
}


@pytest.mark.parametrize("worsen", WORSE.values(), ids=WORSE.keys())
def test_a_gang_whose_node_became_unsuitable_is_placed_again_and_bound_later(
    world: GangWorld, worsen: Callable[[GangWorld], None]
) -> None:
    start(world, "one", 3)
    world.put_node("b", 4)
    worsen(world)
    world.schedule(is_blind=True)
    assert world.bound_pods("one") == 0
    world.run()
    assert "b" in placed_nodes(world.gang("one").status).values()
    world.schedule()
    world.run()
    assert world.bound_pods("one") == 3
    assert (world.phase("one"), world.gang("one").status.attempt) == ("Bound", 1)
    assert world.used("a") <= 4


def test_reservations_that_cannot_be_kept_do_not_prevent_the_first_gang(world: GangWorld) -> None:
    start(world, "one", 2)
    start(world, "two", 2)
    world.put_pod("stranger", {}, 1, node="a")
    world.schedule(is_blind=True)
    world.run()
    assert sorted([world.bound_pods("one"), world.bound_pods("two")]) == [0, 2]
    assert world.used("a") == 3


def test_pods_that_request_more_than_their_gang_says_do_not_overcommit_a_node(world: GangWorld) -> None:
    start(world, "one", 4, cpu=2)
    world.put_node("b", 4)
    world.schedule(is_blind=True)
    assert world.bound_pods("one") == 0
    world.run()
    world.schedule(is_blind=True)
    assert world.bound_pods("one") == 4
    assert (world.used("a"), world.used("b")) == (4, 4)


def test_bindings_in_progress_use_capacity(world: GangWorld) -> None:
    start(world, "one", 2)
    start(world, "two", 2)
    world.put_pod("stranger", {}, 1, node="a")
    world.is_binding_slow = True
    world.schedule(is_blind=True)
    world.end_bindings()
    assert sorted([world.bound_pods("one"), world.bound_pods("two")]) == [0, 2]


def test_bindings_that_failed_take_none(world: GangWorld) -> None:
    start(world, "one", 2)
    start(world, "two", 2)
    world.remove_pods("two")
    world.put_pod("stranger", {}, 1, node="a")
    world.is_binding_broken = True
    world.schedule(is_blind=True)
    world.is_binding_broken = False
    world.remove_pods("one")
    world.create_pods("two")
    world.schedule(is_blind=True)
    assert world.bound_pods("two") == 2


def test_a_replacement_is_looked_at_too(world: GangWorld) -> None:
    start(world, "one", 3)
    world.schedule()
    world.run()
    gone = world.pods_of("one")[0].metadata.name
    world.remove_pod(gone)
    world.create_pods("one")
    world.put_pod("stranger", {}, 2, node="a")
    world.schedule(is_blind=True)
    assert not world.pods[f"{NAMESPACE}/{gone}"].spec.node_name
    world.put_node("b", 4)
    world.run()
    world.schedule()
    assert world.pods[f"{NAMESPACE}/{gone}"].spec.node_name == "b"


def test_a_binding_that_is_tried_again_is_looked_at_again_and_the_member_moves(world: GangWorld) -> None:
    world.put_node("b", 1)
    start(world, "one", 4)
    world.is_binding_slow = world.is_binding_repeated = True
    world.schedule()
    world.put_pod("stranger", {}, 1, node="a")
    world.end_bindings()
    world.is_binding_slow = world.is_binding_repeated = False
    world.run()
    world.schedule()
    world.run()
    assert (world.bound_pods("one"), world.phase("one")) == (4, "Bound")
    assert (world.used("a"), world.used("b")) == (4, 1)


GONE: dict[str, Callable[[GangWorld], None]] = {
    "deleted": lambda world: world.delete_gang("one"),
    "being deleted": lambda world: world.change_gang(
        "one", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    ),
    "made anew": lambda world: world.remake_gang("one"),
    "suspended": lambda world: world.change_gang("one", {"spec": {"suspend": True}}),
}


@pytest.mark.parametrize("end", GONE.values(), ids=GONE.keys())
def test_a_binding_whose_gang_has_gone_is_not_posted_whatever_the_loop_does_just_then(
    world: GangWorld, end: Callable[[GangWorld], None]
) -> None:
    start(world, "one", 3)
    world.is_binding_slow = world.is_binding_repeated = True
    world.schedule()
    end(world)
    world.end_bindings()
    assert world.bound_pods("one") == 0
    world.is_binding_slow = False
    world.add_gang("next", worker=4)
    world.run(3)
    assert world.phase("next") == "Admitted", "its room is for others now"


def test_a_gang_scheduler_that_has_lost_the_lease_posts_no_bindings(world: GangWorld) -> None:
    start(world, "one", 3)
    world.is_binding_slow = world.is_binding_repeated = True
    world.schedule()
    world.is_leading = False
    world.end_bindings()
    assert world.bound_pods("one") == 0


def test_its_own_capacity_does_not_prevent_a_retried_binding(world: GangWorld) -> None:
    start(world, "one", 4)
    world.is_binding_slow = world.is_binding_repeated = True
    world.schedule()
    world.end_bindings()
    assert world.bound_pods("one") == 4
