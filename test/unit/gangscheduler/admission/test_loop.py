"""The admission loop in a played cluster: every rule of its phases, without threads and without time."""

from __future__ import annotations

import pytest

from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from helpers.memoryapi import no_answer, refusal
from tfjob_controller.api.gang import member_of, placed_nodes
from tfjob_controller.gangscheduler.admission.loop import BACKOFF_SECONDS, pause_seconds
from tfjob_controller.gangscheduler.admission.queue import FIGURES_SECONDS
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.state.rejectednodes import REJECTION_SECONDS
from tfjob_controller.gangscheduler.status.lifecycle import REPLACEMENT_SECONDS


def test_a_gang_that_fits_is_admitted_with_a_node_for_every_member_in_one_write(world: GangWorld) -> None:
    world.add_gang("one", worker=3, ps=2)
    before = len(world.api.written("PATCH"))
    world.run()
    status = world.gang("one").status
    assert (status.phase, status.attempt, len(placed_nodes(status))) == ("Admitted", 1, 5)
    assert len(world.api.written("PATCH")) == before + 1


def test_an_unchanged_answer_is_not_written_again(world: GangWorld) -> None:
    world.admit("first", 6)
    world.add_gang("second", worker=6)
    world.run()
    assert world.phase("second") == "Waiting"
    before = len(world.api.written("PATCH"))
    for _ in range(5):
        world.clock.advance(FIGURES_SECONDS)
        world.run()
    assert len(world.api.written("PATCH")) == before


def test_a_place_in_the_queue_alone_is_written_later(world: GangWorld) -> None:
    world.admit("first", 8)
    for number in range(3):
        world.clock.advance(1)
        world.add_gang(f"next-{number}", worker=8)
    world.run()
    assert [world.gang(f"next-{number}").status.position for number in range(3)] == [1, 2, 3]
    world.remove_gang("next-0")
    world.run()
    assert world.gang("next-2").status.position == 3
    world.clock.advance(FIGURES_SECONDS)
    world.run()
    assert world.gang("next-2").status.position == 2


def test_the_figures_of_a_large_gang_are_written_less_often(world: GangWorld) -> None:
    world.admit("first", 8)
    for name in ("next", "large"):
        world.clock.advance(1)
        world.add_gang(name, worker=8)
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(49)]
    members = [{"name": f"kind-{number}", "count": 0, "tolerations": tolerations} for number in range(9)]
    members.append({"name": "worker", "count": 8, "resources": {"cpu": "1"}, "tolerations": tolerations})
    world.change_gang("large", {"spec": {"members": members}})
    world.run()
    assert world.gang("large").status.position == 2
    world.remove_gang("next")
    world.clock.advance(9 * FIGURES_SECONDS)
    world.run()
    assert world.gang("large").status.position == 2
    world.clock.advance(FIGURES_SECONDS)
    world.run()
    assert world.gang("large").status.position == 1


@pytest.mark.parametrize("is_indexed", [False, True], ids=["named", "indexed"])
def test_all_members_are_bound_together(world: GangWorld) -> None:
    world.admit("one", 3)
    world.create_pods("one")
    late = world.pods_of("one")[-1].metadata
    world.remove_pod(late.name)
    world.schedule()
    world.run()
    assert world.bound_pods("one") == 0
    world.create_pods("one")
    world.schedule()
    world.run()
    assert world.bound_pods("one") == 3
    assert world.phase("one") == "Bound"


def test_an_attempt_without_progress_returns_to_the_queue_and_is_retried_after_a_delay(world: GangWorld) -> None:
    """Until then the loop sleeps."""
    world.admit("one", 3)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(2)
    status = world.gang("one").status
    assert (status.phase, status.placement, status.attempt) == ("Waiting", (), 1)
    assert "given up: 0 of 3" in status.message
    assert world.state.view.statistics().reserved_members == 0
    world.run()
    rest = world.admission.sleep_seconds()
    assert 0 < rest <= 2 * BACKOFF_SECONDS
    world.clock.advance(rest + 0.001)
    world.run()
    assert (world.phase("one"), world.gang("one").status.attempt) == ("Admitted", 2)


def test_a_gang_that_is_deleted_while_it_backs_off_does_not_wake_the_loop(world: GangWorld) -> None:
    world.admit("one", 3)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(3)
    assert world.admission.sleep_seconds() <= 2 * BACKOFF_SECONDS
    world.delete_gang("one")
    world.run()
    assert world.admission.sleep_seconds() > 2 * BACKOFF_SECONDS


def test_a_replacement_in_a_bound_gang_is_bound_alone_to_its_old_node(world: GangWorld) -> None:
    world.start("one", 3)
    gone = world.pods_of("one")[0]
    world.remove_pod(gone.metadata.name)
    world.run()
    world.bind("one")
    assert world.pods[f"{NAMESPACE}/{gone.metadata.name}"].spec.node_name == gone.spec.node_name


def test_the_capacity_of_a_member_that_failed_is_kept_and_of_one_that_succeeded_given_away(world: GangWorld) -> None:
    world.start("one", 8)
    names = [pod.metadata.name for pod in world.pods_of("one")]
    world.finish_pod(names[0], "Failed")
    world.add_gang("next", worker=1)
    world.run()
    assert world.phase("next") == "Waiting"
    world.finish_pod(names[1], "Succeeded")
    world.run()
    assert world.phase("next") == "Admitted"


def test_a_released_gang_whose_member_starts_again_is_bound_again(world: GangWorld) -> None:
    world.start("one", 1)
    (pod,) = world.pods_of("one")
    world.finish_pod(pod.metadata.name, "Failed")
    world.run()
    assert world.phase("one") == "Bound"
    world.clock.advance(REPLACEMENT_SECONDS)
    world.run()
    assert world.phase("one") == "Released"
    world.put_pod("one-again", pod.metadata.labels, 1)
    world.run(2)
    world.schedule()
    world.run()
    assert world.phase("one") == "Bound"
    assert world.pods[f"{NAMESPACE}/one-again"].spec.node_name


def test_rejected_pods_of_reassigned_members_are_annotated_with_their_new_nodes(world: GangWorld) -> None:
    world.admit("one", 3)
    world.create_pods("one")
    for pod in world.pods_of("one"):
        world.reject_pod(pod.metadata.name)
    world.remove_node(placed_nodes(world.gang("one").status)["worker-0"])
    world.run(2)
    nodes = placed_nodes(world.gang("one").status)
    assert {world.pod_api.annotated[pod.metadata.name] for pod in world.pods_of("one")} == set(nodes.values())


def test_a_suspended_gang_is_released_and_queues_again_when_it_is_resumed(world: GangWorld) -> None:
    world.admit("one", 3)
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    assert (world.phase("one"), world.gang("one").status.placement) == ("Released", ())
    world.change_gang("one", {"spec": {"suspend": None}})
    world.run()
    assert (world.phase("one"), world.gang("one").status.attempt) == ("Admitted", 2)


def test_a_gang_that_is_resumed_while_its_bindings_end_starts_again_or_is_bound(world: GangWorld) -> None:
    world.admit("one", 4)
    world.create_pods("one")
    world.is_binding_slow = True
    world.schedule()
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    world.change_gang("one", {"spec": {"suspend": False}})
    world.run()
    world.is_binding_broken = True
    world.end_bindings()
    world.is_binding_broken = world.is_binding_slow = False
    world.run()
    assert world.phase("one") == "Waiting"
    world.delete_old_pods("one")
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run()
    world.bind("one")


def test_an_admission_that_is_refused_releases_its_capacity(world: GangWorld) -> None:
    world.add_gang("one", worker=6)
    world.api.script.append(refusal(409, "Conflict"))
    world.run()
    assert world.state.view.statistics().reserved_members == 0
    world.clock.advance(1)
    world.run()
    assert world.phase("one") == "Admitted"


@pytest.mark.parametrize("applied", [True, False], ids=["written", "not written"])
def test_while_nobody_knows_whether_an_admission_was_written_its_capacity_stays_reserved(
    world: GangWorld, applied: bool
) -> None:
    world.add_gang("one", worker=6)
    world.add_gang("two", worker=6)
    world.api.script.append(no_answer(applied=applied))
    world.run_pass()
    assert world.state.view.statistics().reserved_members == 6
    world.clock.advance(1)
    world.run(3)
    phases = sorted(world.phase(name) for name in ("one", "two"))
    assert phases == ["Admitted", "Waiting"]
    assert world.state.view.statistics().reserved_members == 6


def test_a_member_that_is_added_to_a_bound_gang_is_placed_when_it_fits(world: GangWorld) -> None:
    world.start("one", 3)
    world.admit("two", 5)
    world.resize("one", 4)
    world.run()
    status = world.gang("one").status
    assert (len(placed_nodes(status)), status.members, status.last_resize_time) == (3, "3/4", None)
    world.remove_gang("two")
    world.run()
    assert world.gang("one").status.members == "4/4"
    world.run()
    world.create_pods("one")
    world.schedule()
    assert world.bound_pods("one") == 4
    assert world.gang("one").status.attempt == 1


@pytest.mark.parametrize("is_indexed", [False, True], ids=["named", "indexed"])
def test_members_that_are_taken_away_give_their_capacity_to_others_and_the_rest_is_not_touched(
    world: GangWorld,
) -> None:
    world.start("one", 8)
    before = placed_nodes(world.gang("one").status)
    world.resize("one", 6)
    world.run()
    after = placed_nodes(world.gang("one").status)
    assert after == {member: node for member, node in before.items() if member not in ("worker-6", "worker-7")}
    for pod in world.pods_of("one"):
        if member_of(pod.metadata) not in after:
            world.remove_pod(pod.metadata.name)
    world.run()
    world.admit("two", 2)


def test_a_gang_that_started_with_its_minimum_grows_to_its_whole(world: GangWorld) -> None:
    world.admit("other", 4)
    world.add_gang("one", worker=6)
    world.change_gang("one", {"spec": {"minMembers": {"worker": 2}}})
    world.run()
    assert world.gang("one").status.members == "4/6"
    world.bind("one")
    world.remove_gang("other")
    world.run()
    assert world.gang("one").status.members == "6/6"


def test_each_change_of_a_gangs_message_is_one_event_and_changes_of_its_position_none(world: GangWorld) -> None:
    world.admit("first", 8)
    world.add_gang("other", worker=8)
    world.add_gang("second", worker=8)
    for _ in range(3):
        world.clock.advance(FIGURES_SECONDS)
        world.run()
    world.bind("first")
    world.remove_gang("other")
    world.clock.advance(FIGURES_SECONDS)
    world.run()
    assert [(name, reason) for name, reason, _ in world.events.told] == [
        ("first", "Admitted"),
        ("other", "WaitingForCapacity"),
        ("second", "WaitingForCapacity"),
        ("first", "Bound"),
    ]


def test_a_gang_of_no_pods_is_released_once_and_queues_when_it_gets_some(world: GangWorld) -> None:
    world.add_gang("none", worker=0)
    world.run(3)
    assert (world.phase("none"), world.gang("none").status.attempt) == ("Released", 0)
    world.resize("none", 2)
    world.run()
    assert world.phase("none") == "Admitted"


def test_a_gang_whose_minimum_is_none_does_not_start_with_none(world: GangWorld) -> None:
    world.admit("other", 8)
    world.add_gang("one", worker=3)
    world.change_gang("one", {"spec": {"minMembers": {"worker": 0}}})
    for _ in range(5):
        world.clock.advance(1)
        world.run()
    assert (world.phase("one"), world.gang("one").status.attempt) == ("Waiting", 0)
    world.remove_gang("other")
    world.run()
    assert world.gang("one").status.members == "3/3"


def test_a_clock_that_is_set_back_prolongs_no_delay(world: GangWorld) -> None:
    world.admit("one", 3)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(2)
    assert world.gang("one").status.requeue_time
    world.clock.jump(-3600)
    world.run()
    assert world.phase("one") == "Admitted"


def test_a_status_that_cannot_be_written_is_not_tried_without_a_pause(world: GangWorld) -> None:
    world.admit("first", 8)
    world.add_gang("second", worker=8)
    world.api.always = refusal(403, "Forbidden")
    before = len(world.api.written("PATCH"))
    for _ in range(20):
        world.run_pass()
    assert len(world.api.written("PATCH")) == before + 1
    world.api.always = None
    world.clock.advance(1)
    world.run()
    assert world.phase("second") == "Waiting"


def test_failed_writes_do_not_increase_the_delay(world: GangWorld) -> None:
    world.admit("one", 3)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.api.always = refusal(500)
    for _ in range(10):
        world.run()
        world.clock.advance(1)
    world.api.always = None
    for _ in range(2):
        world.run()
        world.clock.advance(2 * BACKOFF_SECONDS)
    world.run()
    assert world.gang("one").status.attempt == 2


def test_the_capacity_of_a_member_that_succeeded_stays_free_when_its_pod_is_deleted(world: GangWorld) -> None:
    world.start("one", 8)
    name = world.pods_of("one")[0].metadata.name
    world.finish_pod(name, "Succeeded")
    world.run()
    world.remove_pod(name)
    world.run()
    world.admit("next", 1)


def test_a_member_whose_pod_is_lost_with_its_node_moves_although_that_pod_stays(world: GangWorld) -> None:
    """Nobody confirms its deletion until the node is back, and its owner has created another one."""
    world.start("one", 1)
    (lost,) = world.pods_of("one")
    world.end_pod(lost.metadata.name)
    world.run()
    world.put_pod("next", lost.metadata.labels, 1)
    world.state.node_rejected(GangMember(f"{NAMESPACE}/one", 1, "worker-0"), lost.spec.node_name)
    world.run()
    world.bind("one")
    assert {pod.spec.node_name for pod in world.pods_of("one")} == {"a", "b"}


def test_nodes_that_refused_a_replacement_are_tried_again_after_a_while(world: GangWorld) -> None:
    world.start("one", 1)
    (pod,) = world.pods_of("one")
    world.remove_pod(pod.metadata.name)
    world.create_pods("one")
    who = GangMember(f"{NAMESPACE}/one", 1, "worker-0")
    for _ in range(3):
        world.state.node_rejected(who, placed_nodes(world.gang("one").status)["worker-0"])
        world.run()
    (stuck,) = world.nodes_of("one")
    world.clock.advance(REJECTION_SECONDS)
    world.state.node_rejected(who, stuck)
    world.run()
    assert world.nodes_of("one") == {"a", "b"} - {stuck}


@pytest.mark.parametrize(
    ("computed", "pause"),
    [
        pytest.param(0.0001, 0.02, id="a short pass: gangs that change meanwhile are processed together"),
        pytest.param(0.03, 0.09, id="it leaves three quarters of the time to bind calls"),
        pytest.param(2.0, 0.2, id="a long pass does not delay gangs"),
    ],
)
def test_the_loop_pauses_after_a_pass(computed: float, pause: float) -> None:
    assert pause_seconds(computed) == pytest.approx(pause)
