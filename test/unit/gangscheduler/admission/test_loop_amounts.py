"""Pods that request other amounts than their Gang says: a LimitRange's defaults, a RuntimeClass's overhead, errors."""

from __future__ import annotations

import pytest

from helpers.gangworld import BIND_TIMEOUT_SECONDS, GangWorld
from tfjob_controller.gangscheduler.state.observedrequests import RETENTION_SECONDS


def give_up(world: GangWorld, name: str) -> None:
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(2)
    assert world.phase(name) in ("Waiting", "Unschedulable")
    world.delete_old_pods(name)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run()


def test_what_they_need_is_not_given_to_others(world: GangWorld) -> None:
    world.admit("one", 4)
    world.create_pods("one", cpu=2)
    world.add_gang("other", worker=1)
    world.run()
    assert world.phase("other") == "Waiting"


def test_where_they_do_not_fit_the_gang_waits_for_what_they_need(world: GangWorld) -> None:
    world.admit("one", 4)
    world.admit("other", 1)
    world.create_pods("one", cpu=2)
    world.bind("other")
    give_up(world, "one")
    assert world.gang("one").status.message.startswith("needs 4 \u00d7 cpu: 2")
    world.remove_gang("other")
    world.run()
    world.create_pods("one", cpu=2)
    world.schedule()
    world.run()
    assert (world.phase("one"), world.gang("one").status.attempt) == ("Bound", 2)


@pytest.mark.parametrize("mended", ["the gang says so", "a while has passed"])
def test_a_gang_is_believed_again(world: GangWorld, mended: str) -> None:
    world.admit("one", 2)
    world.create_pods("one", cpu=5)
    give_up(world, "one")
    assert world.phase("one") == "Unschedulable"
    if mended == "the gang says so":
        world.change_gang(
            "one", {"spec": {"members": [{"name": "worker", "count": 2, "resources": {"cpu": "1", "memory": "0"}}]}}
        )
    else:
        world.clock.advance(RETENTION_SECONDS)
    world.run()
    assert world.phase("one") == "Admitted"


def test_a_new_process_learns_the_pods_requests_from_the_pods(world: GangWorld) -> None:
    world.admit("one", 4)
    world.create_pods("one", cpu=2)
    world.start_scheduler()
    world.run()
    world.schedule()
    world.run()
    assert world.phase("one") == "Bound"


def test_pods_that_need_less_take_what_the_gang_says_until_they_are_bound(world: GangWorld) -> None:
    world.add_gang("one", cpu=2, worker=4)
    world.run()
    world.create_pods("one", cpu=1)
    world.run()
    assert sum(room.free["cpu"] for room in world.state.view.node_infos.values()) == 0
    world.schedule()
    world.run()
    assert sum(room.free["cpu"] for room in world.state.view.node_infos.values()) == 4000


def test_a_replacement_that_needs_more_is_placed_where_that_is(world: GangWorld) -> None:
    world.admit("one", 4)
    world.create_pods("one")
    world.schedule()
    world.run()
    gone = world.pods_of("one")[0].metadata.name
    world.remove_pod(gone)
    world.create_pods("one", cpu=3)
    world.run()
    world.schedule()
    assert all(pod.spec.node_name for pod in world.pods_of("one"))
