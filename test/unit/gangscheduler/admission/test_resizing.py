"""What the gang scheduler does as the members of a bound gang become others, and its pods go for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from helpers.gangworld import BIND_TIMEOUT_SECONDS, SCALE_DOWN_SECONDS, GangWorld
from tfjob_controller.api.gang import MEMBER_LABEL, placed_nodes
from tfjob_controller.gangscheduler.admission.resizing import ResizeRequests
from tfjob_controller.gangscheduler.status.lifecycle import REPLACEMENT_SECONDS, RESTART_SECONDS, pods_by_member
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import QueuedGang, queue_order
from tfjob_controller.scheduling.quota import NamespaceQuotas


def placed(world: GangWorld, name: str) -> str:
    members = placed_nodes(world.gang(name).status)
    return " ".join(sorted(member.removeprefix("worker-") for member in members))


def seconds_since(world: GangWorld, moment: str | None) -> float:
    assert moment is not None
    return (world.clock.now() - datetime.fromisoformat(moment)).total_seconds()


def test_it_is_said_since_when_a_gang_is_bound_in_the_same_write(world: GangWorld) -> None:
    before = len(world.api.written("PATCH"))
    world.start("one", 3)
    assert len(world.api.written("PATCH")) == before + 2
    world.clock.advance(7)
    assert seconds_since(world, world.gang("one").status.bound_time) == 7
    assert world.gang("one").status.last_resize_time is None


@pytest.mark.parametrize("is_seen_first", [True, False])
def test_the_pod_of_an_added_member_that_was_rejected_without_a_place_is_woken(
    world: GangWorld, is_seen_first: bool
) -> None:
    """An owner may create the pod before the placement has followed its spec, and kube-scheduler is as quick."""
    world.start("one", 1)
    world.resize("one", 2)
    if not is_seen_first:
        world.run()
    world.create_pods("one", members=["worker-1"])
    world.reject_pod("one-worker-1-1")
    world.run(3)
    assert world.pod_api.annotated == {"one-worker-1-1": placed_nodes(world.gang("one").status)["worker-1"]}


def test_a_gang_that_is_bound_once_more_has_been_so_since_the_first_time(world: GangWorld) -> None:
    world.start("one", 1)
    since = world.gang("one").status.bound_time
    (pod,) = world.pods_of("one")
    world.finish_pod(pod.metadata.name)
    world.clock.advance(1)
    world.run(2)
    assert world.phase("one") == "Released"
    world.put_pod("again", pod.metadata.labels, 1)
    world.run(2)
    assert (world.phase("one"), world.gang("one").status.bound_time) == ("Bound", since)


def test_a_new_attempt_forgets_when_the_last_one_was_bound_and_resized(world: GangWorld) -> None:
    world.start("one", 3)
    world.resize("one", 2)
    world.run()
    assert world.gang("one").status.last_resize_time
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    world.delete_old_pods("one")
    world.change_gang("one", {"spec": {"suspend": None}})
    world.run()
    status = world.gang("one").status
    assert (status.phase, status.bound_time, status.last_resize_time) == ("Admitted", None, None)


@pytest.mark.parametrize("count", [2, 4], ids=["fewer", "more"])
def test_it_is_said_when_members_came_or_went_last(world: GangWorld, count: int) -> None:
    world.start("one", 3)
    world.clock.advance(5)
    world.resize("one", count)
    world.run()
    world.clock.advance(3)
    world.run()
    assert seconds_since(world, world.gang("one").status.last_resize_time) == 3


def leaving(world: GangWorld, name: str, *members: str) -> None:
    target = len(placed_nodes(world.gang(name).status)) - len(members)
    wish = {"targetMembers": {"worker": target}, "targetReason": "capacity for b", "leaving": list(members)}
    world.change_gang(name, {"status": wish})


def test_members_that_are_leaving_go_first_and_the_others_stay_where_they_are(world: GangWorld) -> None:
    world.start("one", 4)
    nodes = placed_nodes(world.gang("one").status)
    leaving(world, "one", "worker-1", "worker-2")
    world.resize("one", 2)
    world.run()
    status = world.gang("one").status
    assert placed_nodes(status) == {each: nodes[each] for each in ("worker-0", "worker-3")}
    assert (status.target_members, status.target_reason, status.leaving) == ({}, "", ())


@pytest.mark.parametrize("is_indexed", [False, True], ids=["named", "indexed"])
def test_holes_are_filled_first_when_it_grows_again(world: GangWorld) -> None:
    world.start("one", 4)
    leaving(world, "one", "worker-1", "worker-2")
    world.resize("one", 2)
    world.run()
    world.delete_old_pods("one")
    world.resize("one", 3)
    world.run()
    assert placed(world, "one") == "0 1 3"
    world.run()
    world.create_pods("one")
    world.schedule()
    world.run()
    assert [bool(pod.spec.node_name) for pod in world.pods_of("one")] == [True] * 3


def test_what_an_admitted_gang_has_no_more_is_not_waited_for_wherever_the_hole_is(world: GangWorld) -> None:
    world.add_gang("one", worker=3)
    world.run()
    world.change_gang("one", {"status": {"leaving": ["worker-1"]}})
    world.resize("one", 2)
    world.run(2)
    world.create_pods("one")
    world.schedule()
    world.run()
    assert (world.phase("one"), placed(world, "one")) == ("Bound", "0 2")


def test_a_bound_gang_without_pods_keeps_its_capacity_for_a_while(world: GangWorld) -> None:
    world.start("one", 8)
    world.add_gang("next", worker=1)
    world.remove_pods("one")
    world.run()
    world.clock.advance(REPLACEMENT_SECONDS - 1)
    world.run()
    assert world.phase("one") == "Bound"
    assert world.phase("next") == "Waiting"
    world.create_pods("one")
    world.schedule()
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run()
    assert [bool(pod.spec.node_name) for pod in world.pods_of("one")] == [True] * 8
    assert world.phase("next") == "Waiting"


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        pytest.param(None, REPLACEMENT_SECONDS, id="inelastic"),
        pytest.param((1, 8), RESTART_SECONDS, id="elastic: its owner may restart all of it"),
    ],
)
def test_a_gang_that_gets_no_pods_in_that_time_gives_its_capacity_back(
    world: GangWorld, limits: tuple[int, int] | None, seconds: float
) -> None:
    world.start("one", 8, limits=limits)
    world.remove_pods("one")
    world.run()
    world.clock.advance(seconds - 1)
    world.run()
    assert world.phase("one") == "Bound"
    world.clock.advance(1)
    world.run()
    assert world.phase("one") == "Released"
    world.admit("next", 1)


def test_one_of_which_some_have_succeeded_is_over_with_its_last_pod(world: GangWorld) -> None:
    world.start("one", 2)
    world.finish_pod(world.pods_of("one")[0].metadata.name)
    world.run()
    world.remove_pods("one")
    world.run()
    assert world.phase("one") == "Released"


def test_a_member_that_comes_goes_to_the_parameter_servers_if_there_is_capacity() -> None:
    """The node with most workers would be left with less, and the name of the other comes first."""
    world = GangWorld()
    world.put_node("a", 3)
    world.put_node("b", 4)
    world.put_node("c", 3)
    world.add_gang("one", ps=1, worker=3)
    world.run()
    placement = [
        {"node": "a", "members": ["worker-0"]},
        {"node": "b", "members": ["ps-0"]},
        {"node": "c", "members": ["worker-1", "worker-2"]},
    ]
    world.change_gang("one", {"status": {"placement": placement}})
    world.run()
    world.create_pods("one")
    world.schedule()
    world.run()
    members = [{"name": name, "count": count, "resources": {"cpu": "1"}} for name, count in (("ps", 1), ("worker", 4))]
    world.change_gang("one", {"spec": {"members": members}})
    world.run()
    assert placed_nodes(world.gang("one").status)["worker-3"] == "b"


def test_capacity_that_is_being_freed_for_a_gang_stays_nominated_whatever_the_rules_cost() -> None:
    """The cache of pods may show a deletion before the view does: just then the rules find no capacity for the gang."""
    world = GangWorld()
    world.put_node("a", 4)
    world.put_node("b", 4)
    world.start("big", 8, limits=(1, 8))
    world.add_gang("next", worker=3)
    world.run()
    world.clock.advance(SCALE_DOWN_SECONDS + 1)
    world.run()
    leaving = world.gang("big").status.leaving
    assert len(leaving) == 3
    world.resize("big", 5)
    world.run(2)

    def rules_that_take_a_second() -> Sequence[QueuedGang]:
        world.clock.advance(1)
        return queue_order([world.gang("next")])

    requests = ResizeRequests(
        world.state.view,
        world.gangs,
        NamespaceQuotas(lambda namespace: ()),
        world.state.observed_requests,
        AutoscalingPolicy(SCALE_DOWN_SECONDS, 60.0),
        world.clock,
        lambda key, moment: None,
    )
    gang, pods = world.gang("big"), world.pods_of("big")
    still_cached = [pod for pod in pods if pod.metadata.labels[MEMBER_LABEL] != leaving[0]]
    by_member = pods_by_member(gang, still_cached)
    requests.update(gang, by_member, still_cached, has_succeeded=False, now=world.clock.now())
    assert requests.plan(rules_that_take_a_second, world.clock.now()).nominated is None
    world.remove_pod(next(pod.metadata.name for pod in pods if pod not in still_cached))
    requests.update(gang, by_member, still_cached, has_succeeded=False, now=world.clock.now())
    assert requests.plan(rules_that_take_a_second, world.clock.now()).nominated is not None
