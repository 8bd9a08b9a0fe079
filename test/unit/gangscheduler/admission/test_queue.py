"""Who waits though it fits, and who is bound in part, as a scrape finds them in a played cluster."""

from __future__ import annotations

import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.api.gang import member_of, placed_nodes
from tfjob_controller.gangscheduler.admission import queue


def waits(world: GangWorld) -> list[tuple[str, float]]:
    return [*queue.waiting_gangs(world.gangs.list(), world.admission.decisions, world.clock.now())]


def partly(world: GangWorld) -> list[float]:
    return [
        *queue.partly_bound_seconds(
            world.gangs.list(), lambda gang: world.pods_of(gang.metadata.name), world.clock.now()
        )
    ]


def test_a_gang_without_capacity_does_not_fit_and_its_wait_is_counted(world: GangWorld) -> None:
    world.add_gang("first", worker=8)
    world.run()
    world.add_gang("second", worker=1)
    world.run()
    world.clock.advance(40)
    assert waits(world) == [(queue.NO, 40.0)]


def test_a_gang_that_could_start_without_an_older_one_is_held_back(world: GangWorld) -> None:
    world.start("running", 7)
    world.add_gang("old", worker=3)
    world.run()
    world.clock.advance(60)
    world.add_gang("young", worker=1)
    world.run()
    assert waits(world) == [(queue.NO, 60.0), (queue.HELD, 0.0)]


def test_a_gang_that_backs_off_after_a_failed_attempt_would_fit(world: GangWorld) -> None:
    world.add_gang("one", worker=2)
    world.run()
    attempt = world.gang("one").status.attempt
    world.state.attempt_rejected(f"{NAMESPACE}/one", attempt)
    world.run(2)
    assert [fits for fits, _ in waits(world)] == [queue.YES]


def test_of_a_gang_that_no_pass_has_seen_nothing_is_known(world: GangWorld) -> None:
    world.add_gang("one", worker=2)
    world.deliver()
    assert [fits for fits, _ in waits(world)] == [queue.UNKNOWN]


@pytest.mark.parametrize("is_indexed", [False, True], ids=["named", "indexed"])
def test_a_gang_is_bound_in_part_from_its_first_binding_to_its_last(world: GangWorld) -> None:
    world.add_gang("one", worker=2)
    world.run()
    world.create_pods("one")
    assert partly(world) == []
    world.clock.advance(5)
    for pod in world.pods_of("one"):
        node = placed_nodes(world.gang("one").status)[member_of(pod.metadata)]
        world.put_pod(pod.metadata.name, pod.metadata.labels, 1, node=node, uid=pod.metadata.uid)
        is_last = member_of(pod.metadata) == "worker-1"
        assert partly(world) == ([] if is_last else [5.0])
