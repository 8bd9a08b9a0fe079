"""Wishes for other sizes of running gangs: when they are said, followed and withdrawn, in a played cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from helpers.gangworld import NAMESPACE, SCALE_DOWN_SECONDS, SCALE_UP_SECONDS, GangWorld
from helpers.memoryapi import refusal
from tfjob_controller.api.gang import GangStatus, member_of, placed_nodes, wanted_members
from tfjob_controller.gangscheduler.admission import resizing
from tfjob_controller.gangscheduler.admission.resizing import RELEASE_TIMEOUT_SECONDS
from tfjob_controller.gangscheduler.extender.wire import WirePod
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.autoscaling.autoscaler import plan_resizes
from tfjob_controller.scheduling.autoscaling.elasticgang import ResizePlan

RESERVED = "the remaining capacity of this node is reserved for gangs"


@pytest.fixture
def world(world: GangWorld) -> GangWorld:
    """Two nodes of four CPUs, full with a gang that could give four of its eight workers."""
    world.start("big", 8, limits=(4, 8))
    return world


@pytest.fixture
def asked(world: GangWorld) -> GangWorld:
    """A gang of three has waited for so long that the other should give it room."""
    world.add_gang("next", worker=3)
    world.run()
    later(world, SCALE_DOWN_SECONDS)
    assert target(world) == 5
    return world


def foreign(cpu: str) -> WirePod:
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    body = {"metadata": {"name": "foreign", "namespace": NAMESPACE}, "spec": spec}
    return WirePod(ObjectMeta(name="foreign", namespace=NAMESPACE), msgspec.json.encode(body))


def later(world: GangWorld, seconds: float) -> None:
    world.clock.advance(seconds)
    world.run(3)


def status(world: GangWorld, name: str = "big") -> GangStatus:
    return world.gang(name).status


def target(world: GangWorld, name: str = "big") -> int | None:
    return status(world, name).target_members.get("worker")


def follow(world: GangWorld) -> None:
    """The owner does as it is told; the pods that go need a while to end."""
    world.resize("big", target(world) or 0)
    for pod in unwanted(world):
        world.end_pod(pod)
    world.run(2)


def unwanted(world: GangWorld, name: str = "big") -> list[str]:
    wanted = wanted_members(world.gang(name))
    return [pod.metadata.name for pod in world.pods_of(name) if member_of(pod.metadata) not in wanted]


def remove(world: GangWorld, pods: list[str]) -> None:
    for pod in pods:
        world.remove_pod(pod)


def phases(world: GangWorld) -> dict[str, str]:
    return {name: status(world, name).phase for name in world.names()}


def test_a_gang_is_requested_to_shrink_once_another_has_waited_and_not_before(world: GangWorld) -> None:
    world.add_gang("next", worker=3)
    world.run()
    later(world, SCALE_DOWN_SECONDS - 1)
    assert target(world) is None
    assert world.admission.sleep_seconds() == pytest.approx(1)
    later(world, 1)
    found = status(world)
    assert found.target_members == {"worker": 5}
    assert found.leaving == ("worker-5", "worker-6", "worker-7")
    assert found.target_reason == "capacity for team/next, waiting 30 s"
    assert ("big", "ShrinkRequested", "worker: 8 -> 5, capacity for team/next, waiting 30 s") in world.events.told


def test_nobody_shrinks_further_while_the_view_still_counts_pods_that_are_gone(asked: GangWorld) -> None:
    """On a busy machine the handler of pods, which keeps the view current, is behind the store."""
    asked.change_gang("big", {"spec": {"minMembers": {"worker": 1}}})
    asked.is_pod_handler_slow = True
    asked.resize("big", target(asked) or 0)
    remove(asked, unwanted(asked))
    asked.run()
    later(asked, 1)
    assert (target(asked), status(asked).members, phases(asked)["next"]) == (None, "5/5", "Waiting")
    asked.is_pod_handler_slow = False
    asked.deliver_pods()
    later(asked, 1)
    assert (target(asked), phases(asked)["next"]) == (None, "Admitted")


def test_a_resize_request_is_written_once(asked: GangWorld) -> None:
    before = len(asked.api.written("PATCH"))
    for _ in range(10):
        later(asked, 7)
    assert len(asked.api.written("PATCH")) == before


def test_it_is_not_said_any_more_once_its_owner_has_followed(asked: GangWorld) -> None:
    nodes = placed_nodes(status(asked))
    follow(asked)
    found = status(asked)
    assert (found.target_members, found.leaving, found.target_reason) == ({}, (), "")
    assert placed_nodes(found) == {f"worker-{index}": nodes[f"worker-{index}"] for index in range(5)}
    assert found.last_resize_time


def test_the_freed_capacity_is_for_the_waiting_gang_despite_later_ones(asked: GangWorld) -> None:
    asked.add_gang("small", worker=1)
    asked.add_gang("dear", worker=1, priority=9)
    follow(asked)
    pods = unwanted(asked)
    for pod in pods:
        asked.run()
        assert {*phases(asked).values()} == {"Bound", "Waiting"}
        asked.remove_pod(pod)
    asked.run()
    assert phases(asked) == {"big": "Bound", "next": "Admitted", "small": "Waiting", "dear": "Waiting"}


def test_nor_does_a_pod_of_no_gang(asked: GangWorld) -> None:
    """As long as nobody has given anything, nothing is kept off it."""
    asked.put_node("small", 1)
    assert asked.placements.allowed_nodes(foreign("1"), ["a", "b", "small"])[0] == ["small"]
    follow(asked)
    pods = unwanted(asked)
    node = next(pod.spec.node_name for pod in asked.pods_of("big") if pod.metadata.name == pods[0])
    asked.remove_pod(pods[0])
    asked.run()
    assert asked.state.view.free(node)["cpu"] == 1000
    allowed, refused = asked.placements.allowed_nodes(foreign("1"), ["a", "b", "small"])
    assert (allowed, refused[node]) == (["small"], RESERVED)
    assert asked.placements.allowed_nodes(foreign("0"), ["a", "b"])[0] == ["a", "b"]
    asked.remove_gang("next")
    asked.run()
    assert node in asked.placements.allowed_nodes(foreign("1"), ["a", "b"])[0]


def test_members_that_are_added_elsewhere_do_not_take_it(asked: GangWorld) -> None:
    follow(asked)
    # A HorizontalPodAutoscaler, say, wants them back.
    asked.resize("big", 8)
    remove(asked, [pod.metadata.name for pod in asked.pods_of("big")][5:])
    asked.run(3)
    assert phases(asked) == {"big": "Bound", "next": "Admitted"}
    assert len(placed_nodes(status(asked))) == 5


@pytest.fixture
def one_of_two(world: GangWorld) -> GangWorld:
    """Of two that could give room to a gang of three the one of the lower priority is asked."""
    world.put_node("c", 4)
    world.start("other", 4, limits=(1, 4), priority=1)
    world.add_gang("next", worker=3, priority=1)
    world.run()
    later(world, SCALE_DOWN_SECONDS)
    assert (target(world), target(world, "other")) == (5, None)
    return world


@pytest.mark.parametrize("are_told", [True, False], ids=["pods that were told to", "pods that nobody has told"])
def test_no_other_gang_is_requested_to_shrink_until_the_pods_had_time_to_end(
    one_of_two: GangWorld, are_told: bool
) -> None:
    one_of_two.resize("big", 5)
    for pod in unwanted(one_of_two) if are_told else ():
        one_of_two.end_pod(pod)
    one_of_two.run()
    later(one_of_two, RELEASE_TIMEOUT_SECONDS - 1)
    assert target(one_of_two, "other") is None
    assert one_of_two.admission.sleep_seconds() == pytest.approx(1)
    later(one_of_two, 2)
    assert target(one_of_two, "other") == 1


WITHDRAWN: dict[str, Callable[[GangWorld], None]] = {
    "the gang that waited is gone": lambda world: world.remove_gang("next"),
    "the other is elastic no more": lambda world: world.change_gang("big", {"spec": {"maxMembers": None}}),
    "a member of it has ended": lambda world: world.finish_pod(world.pods_of("big")[0].metadata.name, "Succeeded"),
}


@pytest.mark.parametrize("change", WITHDRAWN.values(), ids=WITHDRAWN.keys())
def test_a_resize_request_is_withdrawn_when_it_holds_no_more(
    asked: GangWorld, change: Callable[[GangWorld], None]
) -> None:
    change(asked)
    asked.run(3)
    found = status(asked)
    assert (found.target_members, found.leaving, found.target_reason) == ({}, (), "")
    assert found.phase == "Bound"


def test_a_new_gang_scheduler_goes_on_in_the_middle_of_a_shrink(asked: GangWorld) -> None:
    asked.start_scheduler()
    before = len(asked.api.written("PATCH"))
    asked.run()
    assert (target(asked), len(asked.api.written("PATCH"))) == (5, before)
    follow(asked)
    asked.start_scheduler()
    asked.add_gang("dear", worker=1, priority=9)
    asked.run()
    assert status(asked, "dear").phase == "Waiting"
    remove(asked, unwanted(asked))
    asked.start_scheduler()
    asked.run()
    assert phases(asked) == {"big": "Bound", "next": "Admitted", "dear": "Waiting"}


def test_a_resize_request_that_could_not_be_written_is_written_later(world: GangWorld) -> None:
    world.add_gang("next", worker=3)
    world.run()
    world.api.always = refusal(500)
    later(world, SCALE_DOWN_SECONDS)
    assert target(world) is None
    world.api.always = None
    later(world, 1)
    assert target(world) == 5


def test_an_owner_that_resizes_during_a_pass_gets_no_request_to_revert_it(
    world: GangWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_gang("next", worker=3)
    world.run()

    def planned(*given: Any, **more: Any) -> ResizePlan:
        plan = plan_resizes(*given, **more)
        if plan.resizes:
            world.resize("big", 4)
        return plan

    monkeypatch.setattr(resizing, "plan_resizes", planned)
    later(world, SCALE_DOWN_SECONDS)
    assert all("targetMembers" not in str(each) for each in world.api.written("PATCH"))


def test_an_owner_that_removes_more_members_than_requested_gets_no_further_request(asked: GangWorld) -> None:
    asked.resize("big", 4)
    for pod in unwanted(asked):
        asked.end_pod(pod)
    asked.run(3)
    assert target(asked) is None
    # Those who were leaving have gone, and then the one of the highest index.
    assert placed_nodes(status(asked)).keys() == {"worker-0", "worker-1", "worker-2", "worker-3"}


def test_members_that_went_before_their_owner_said_so_leave_nothing_behind(asked: GangWorld) -> None:
    leaving = status(asked).leaving
    for pod in asked.pods_of("big"):
        if member_of(pod.metadata) in leaving:
            asked.remove_pod(pod.metadata.name)
    asked.run()
    asked.resize("big", 5)
    asked.run(4)
    assert phases(asked) == {"big": "Bound", "next": "Admitted"}


# Growing


@pytest.fixture
def idle(world: GangWorld) -> GangWorld:
    """The same gang with six of its eight workers, and nothing happens."""
    world.resize("big", 6)
    world.run(2)
    remove(world, unwanted(world))
    world.run()
    return world


def test_a_gang_is_requested_to_grow_by_one_in_an_idle_cluster(idle: GangWorld) -> None:
    later(idle, SCALE_UP_SECONDS - 1)
    assert target(idle) is None
    assert idle.admission.sleep_seconds() == pytest.approx(1)
    later(idle, 1)
    found = status(idle)
    assert (found.target_members, found.leaving) == ({"worker": 7}, ())
    assert found.target_reason == "the cluster has free capacity"
    assert ("big", "GrowRequested", "worker: 6 -> 7, the cluster has free capacity") in idle.events.told


def test_nobody_grows_soon_after_a_gang_had_to_wait(idle: GangWorld) -> None:
    idle.add_gang("next", worker=4)
    idle.run()
    later(idle, 10)
    idle.put_node("c", 8)
    idle.run()
    idle.bind("next")
    later(idle, SCALE_UP_SECONDS - 1)
    assert target(idle) is None
    later(idle, 1)
    assert target(idle) == 7


def test_gangs_that_start_at_once_keep_nobody_from_growing(idle: GangWorld) -> None:
    later(idle, SCALE_UP_SECONDS - 1)
    idle.start("quick", 1)
    later(idle, 1)
    assert target(idle) == 7


def test_a_gang_whose_pods_are_not_all_there_does_not_grow(idle: GangWorld) -> None:
    idle.remove_pod(idle.pods_of("big")[0].metadata.name)
    later(idle, SCALE_UP_SECONDS)
    assert target(idle) is None
    idle.bind("big")
    later(idle, 1)
    assert target(idle) == 7


def test_a_loop_with_nothing_to_do_sleeps(idle: GangWorld) -> None:
    later(idle, SCALE_UP_SECONDS)
    idle.resize("big", 7)
    idle.run()
    idle.bind("big")
    idle.run(4)
    assert idle.admission.sleep_seconds() > SCALE_UP_SECONDS / 4
