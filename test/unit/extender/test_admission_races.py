"""The admission loop while Bindings are under way: what the watch has not shown yet counts all the same."""

from __future__ import annotations

import pytest

from helpers.gangworld import BIND_TIMEOUT_SECONDS, GangWorld
from tfjob_controller.api.gang import placed_nodes


@pytest.fixture
def world() -> GangWorld:
    world = GangWorld()
    world.put_node("a", 4)
    world.put_node("b", 4)
    world.add_gang("one", worker=3)
    world.run()
    world.create_pods("one")
    return world


def test_a_member_whose_binding_is_under_way_keeps_its_node_and_its_room(world: GangWorld) -> None:
    (node,) = set(placed_nodes(world.gang("one").status).values())
    world.is_binding_slow = True
    world.schedule()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert set(placed_nodes(world.gang("one").status).values()) == {node}
    assert world.admission.view.rooms[node].free["cpu"] == -1000
    world.end_bindings()
    world.run()
    assert world.gang("one").status.phase == "Bound"
    (other,) = {"a", "b"} - {node}
    assert world.admission.view.rooms[other].free["cpu"] == 4000


def test_a_member_that_only_waits_for_others_is_moved(world: GangWorld) -> None:
    (node,) = set(placed_nodes(world.gang("one").status).values())
    late = world.pods_of("one")[-1]
    world.remove_pod(late.metadata.name)
    world.schedule()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert set(placed_nodes(world.gang("one").status).values()) == {"a", "b"}
    world.create_pods("one")
    world.schedule()
    world.run()
    assert world.gang("one").status.phase == "Bound"


def test_an_attempt_that_was_given_up_moves_nobody(world: GangWorld) -> None:
    (node,) = set(placed_nodes(world.gang("one").status).values())
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.gate.tick()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert world.gang("one").status.phase == "Waiting"


def test_a_gang_that_loses_its_pods_before_it_was_seen_bound_goes_back_to_the_queue(world: GangWorld) -> None:
    world.schedule()
    for node in ("a", "b"):
        world.remove_node(node)
    world.run()
    assert world.gang("one").status.phase == "Admitted"
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run()
    world.run()
    assert world.gang("one").status.phase in ("Waiting", "Unschedulable")
