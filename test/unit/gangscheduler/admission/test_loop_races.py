"""The admission loop while Bindings are under way: what the watch has not shown yet counts all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from helpers.memoryapi import Fault, Request, no_answer, refusal
from tfjob_controller.api.gang import member_of, placed_nodes
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.kube.errors import ApiError


@pytest.fixture
def world(world: GangWorld) -> GangWorld:
    world.add_gang("one", worker=3)
    world.run()
    world.create_pods("one")
    return world


def test_a_member_whose_binding_is_in_progress_keeps_its_node_and_its_capacity(world: GangWorld) -> None:
    (node,) = world.nodes_of("one")
    world.is_binding_slow = True
    world.schedule()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert world.nodes_of("one") == {node}
    assert world.state.view.node_infos[node].free["cpu"] == -1000
    world.end_bindings()
    world.run()
    assert world.phase("one") == "Bound"
    (other,) = {"a", "b"} - {node}
    assert world.state.view.node_infos[other].free["cpu"] == 4000


def test_a_member_that_only_waits_for_others_is_moved(world: GangWorld) -> None:
    (node,) = world.nodes_of("one")
    late = world.pods_of("one")[-1]
    world.remove_pod(late.metadata.name)
    world.schedule()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert world.nodes_of("one") == {"a", "b"}
    world.bind("one")


def test_an_attempt_that_was_given_up_moves_nobody(world: GangWorld) -> None:
    (node,) = world.nodes_of("one")
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.permit.tick()
    world.put_pod("stranger", {}, 2, node=node)
    world.run()
    assert world.phase("one") == "Waiting"


def test_a_gang_that_loses_its_pods_before_it_was_seen_bound_goes_back_to_the_queue(world: GangWorld) -> None:
    world.schedule()
    for node in ("a", "b"):
        world.remove_node(node)
    world.run()
    assert world.phase("one") == "Admitted"
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(2)
    assert world.phase("one") in ("Waiting", "Unschedulable")


def replace_one(world: GangWorld) -> str:
    """A member of the bound gang dies, and its replacement's Binding is under way; its name."""
    gone = world.pods_of("one")[-1].metadata.name
    world.remove_pod(gone)
    world.run()
    world.is_binding_slow = True
    world.create_pods("one")
    world.schedule()
    return str(gone)


def suspend_under_a_binding(world: GangWorld) -> str:
    """The bound gang, while its replacement's Binding is under way, which will fail; the replacement's name."""
    world.bind("one")
    gone = replace_one(world)
    world.is_binding_broken = True
    world.change_gang("one", {"spec": {"suspend": True}})
    return gone


def fail_bindings(world: GangWorld) -> None:
    """Those under way; later ones succeed."""
    world.end_bindings()
    world.is_binding_broken = world.is_binding_slow = False


DELETION = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
ENDS: dict[str, Callable[[GangWorld], None]] = {
    "suspended": lambda world: world.change_gang("one", {"spec": {"suspend": True}}),
    "deleted": lambda world: world.delete_gang("one"),
    "being deleted": lambda world: world.change_gang("one", DELETION),
    "made anew": lambda world: world.remake_gang("one"),
    "of no members": lambda world: world.resize("one", 0),
}


@pytest.mark.parametrize("is_bound", [False, True], ids=["admitted", "bound"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_capacity_of_a_gang_that_ends_is_not_given_away_while_bindings_are_in_progress(
    world: GangWorld, end: Callable[[GangWorld], None], is_bound: bool
) -> None:
    if is_bound:
        world.bind("one")
        replace_one(world)
    else:
        world.is_binding_slow = True
        world.schedule()
    end(world)
    world.add_gang("next", worker=6)
    world.run(3)
    assert world.phase("next") in ("", "Waiting")
    world.is_binding_slow = False
    world.end_bindings()
    world.remove_pods("one")
    world.run(3)
    assert world.phase("next") == "Admitted"


def test_a_bound_gang_that_is_suspended_binds_no_replacement_any_more(world: GangWorld) -> None:
    gone = suspend_under_a_binding(world)
    world.run()
    fail_bindings(world)
    world.schedule()
    world.run()
    world.schedule()
    assert not world.pods[f"{NAMESPACE}/{gone}"].spec.node_name
    assert world.phase("one") == "Released"


def test_a_bound_gang_that_is_suspended_and_resumed_at_once_goes_on(world: GangWorld) -> None:
    gone = suspend_under_a_binding(world)
    world.run_pass()
    world.change_gang("one", {"spec": {"suspend": None}})
    fail_bindings(world)
    world.run()
    world.schedule()
    assert world.pods[f"{NAMESPACE}/{gone}"].spec.node_name


def test_a_gang_that_is_suspended_grows_no_more(world: GangWorld) -> None:
    world.add_gang("two", worker=5)
    world.run()
    world.bind("one")
    world.resize("one", 5)
    world.run()
    replace_one(world)
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    world.remove_gang("two")
    world.run()
    assert world.gang("one").status.members == "3/5"


@pytest.mark.parametrize("is_bound", [False, True], ids=["admitted", "bound"])
def test_the_capacity_of_a_member_that_is_taken_away_while_its_binding_is_in_progress_is_not_given_away(
    world: GangWorld, is_bound: bool
) -> None:
    if is_bound:
        world.bind("one")
        replace_one(world)
    else:
        world.is_binding_slow = True
        world.schedule()
    world.resize("one", 2)
    world.run(3)
    (node,) = world.nodes_of("one")
    assert world.state.view.node_infos[node].free["cpu"] == 1000
    world.is_binding_slow = False
    world.end_bindings()
    world.remove_pod(next(pod.metadata.name for pod in world.pods_of("one") if "worker-2" in pod.metadata.name))
    for _ in range(3):
        world.clock.advance(1)
        world.run()
    assert world.phase("one") == "Bound"
    assert world.state.view.node_infos[node].free["cpu"] == 2000


def test_a_gang_that_shrinks_before_it_is_complete_does_not_wait_for_removed_members(world: GangWorld) -> None:
    last = next(pod for pod in world.pods_of("one") if "worker-2" in pod.metadata.name)
    world.remove_pod(last.metadata.name)
    world.schedule()
    world.resize("one", 2)
    world.run(3)
    status = world.gang("one").status
    assert (status.phase, status.members, status.attempt) == ("Bound", "2/2", 1)


def test_a_recreated_gang_does_not_count_the_pods_of_the_old_one(world: GangWorld) -> None:
    world.bind("one")
    world.remake_gang("one")
    world.run(2)
    status = world.gang("one").status
    assert (status.phase, status.attempt) == ("Admitted", 2)
    world.create_pods("one")
    world.schedule()
    world.run()
    assert world.bound_pods("one") == 6


def test_a_recreated_gang_is_not_given_up_for_the_old_one(world: GangWorld) -> None:
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.permit.tick()
    world.remake_gang("one")
    world.remove_pods("one")
    world.run(2)
    world.create_pods("one")
    world.bind("one")


@pytest.mark.parametrize("fault", ["conflict", "lost before", "lost after"])
def test_a_member_that_was_moved_is_not_put_back_by_what_was_read_before(world: GangWorld, fault: str) -> None:
    """The write of the move went wrong, or nobody knows: the Gang that is read still says the old node."""
    (bad,) = world.nodes_of("one")
    (good,) = {"a", "b"} - {bad}
    world.put_node(bad, 4, unschedulable=True)
    world.api.script.append(
        refusal(409, "Conflict") if fault == "conflict" else no_answer(applied=fault == "lost after")
    )
    world.run_pass()
    seats: list[Mapping[str, str]] = []
    world.permit.set_placement = spied(world.permit.set_placement, seats)  # type: ignore[method-assign]  # to see what the gate is told
    world.clock.advance(1)
    world.run_pass()
    assert seats
    assert all(set(nodes.values()) == {good} for nodes in seats)
    world.deliver()
    for _ in range(3):
        world.clock.advance(1)
        world.run()
    assert world.nodes_of("one") == {good}
    world.bind("one")


def spied(expect: Callable[..., None], seats: list[Mapping[str, str]]) -> Callable[..., None]:
    def spy(gang: str, attempt: int, nodes: Mapping[str, str], **options: Any) -> None:
        seats.append(nodes)
        expect(gang, attempt, nodes, **options)

    return spy


def test_a_node_that_is_refused_while_the_admissions_of_others_are_written_counts(world: GangWorld) -> None:
    world.add_gang("two", worker=2)
    refused: list[str] = []

    def refuse(request: object) -> None:
        """kube-scheduler is quicker than the writer's next answers."""
        (node,) = world.nodes_of("two")
        refused.append(node)
        world.state.node_rejected(GangMember(f"{NAMESPACE}/two", 1, "worker-0"), node)

    world.api.script.append(Fault(after=refuse))
    world.run_pass()
    world.run(2)
    assert refused
    assert placed_nodes(world.gang("two").status)["worker-0"] not in refused


def test_a_rejected_pod_is_woken_once_for_each_node_of_its_member(world: GangWorld) -> None:
    world.add_gang("two", worker=2)
    world.run()
    before = placed_nodes(world.gang("two").status)
    world.state.node_rejected(GangMember(f"{NAMESPACE}/two", 1, "worker-0"), before["worker-0"])
    world.run()
    after = placed_nodes(world.gang("two").status)
    assert after["worker-0"] != before["worker-0"]
    world.create_pods("two")
    world.run()
    assert not world.pod_api.woken
    for _ in range(2):
        world.reject_pod("two-worker-0-1")
        world.run()
    assert world.pod_api.woken == ["two-worker-0-1"]
    assert world.pod_api.annotated == {"two-worker-0-1": after["worker-0"]}


@pytest.mark.parametrize("is_bound", [False, True], ids=["admitted", "bound"])
def test_members_without_another_node_get_the_first_that_has_capacity(world: GangWorld, is_bound: bool) -> None:
    (bad,) = world.nodes_of("one")
    (other,) = {"a", "b"} - {bad}
    if is_bound:
        world.bind("one")
    world.put_pod("stranger", {}, 4, node=other)
    if is_bound:
        world.remove_pods("one")
        world.create_pods("one")
    world.put_node(bad, 4, unschedulable=True)
    for pod in world.pods_of("one"):
        who = GangMember(f"{NAMESPACE}/one", 1, member_of(pod.metadata))
        world.state.node_rejected(who, bad)
    world.run()
    world.add_gang("younger", worker=4)
    world.run()
    world.remove_pod("stranger")
    world.run()
    assert world.nodes_of("one") == {other}
    assert world.phase("younger") == "Waiting"
    world.bind("one")


def test_a_placement_that_was_edited_by_hand_follows_the_pods(world: GangWorld) -> None:
    (node,) = world.nodes_of("one")
    (other,) = {"a", "b"} - {node}
    world.bind("one")
    members = ["worker-0", "worker-1", "worker-2"]
    world.change_gang("one", {"status": {"placement": [{"node": other, "members": members}]}})
    world.run(3)
    assert world.nodes_of("one") == {node}
    assert world.state.view.node_infos[other].free["cpu"] == 4000


def test_a_gang_that_is_being_deleted_is_not_said_to_have_failed(world: GangWorld) -> None:
    world.change_gang("one", DELETION)
    world.run(3)
    assert [reason for _, reason, _ in world.events.told] == ["Admitted"]
    assert world.state.view.statistics().reserved_members == 0


def test_a_gang_that_is_recreated_between_decision_and_write_is_admitted_by_a_decision_of_its_own(
    world: GangWorld,
) -> None:
    world.add_gang("two", worker=4)
    world.api.script.append(Fault(before=lambda request: world.remake_gang("two")))
    world.run_pass()
    assert world.phase("two") == ""
    assert world.state.view.statistics().reserved_members == 3, "what was reserved for it is given back"
    world.clock.advance(1)
    world.run()
    assert world.phase("two") == "Admitted"
    assert world.state.view.statistics().reserved_members == 7


def test_an_admission_that_arrives_long_after_it_was_given_up_uses_no_capacity_twice(world: GangWorld) -> None:
    """The request was lost on its way, for so long that the Gang was read without it: and then the server gets it."""
    world.add_gang("two", worker=5)
    late: list[Request] = []

    def hold_back(request: Request) -> None:
        late.append(request)
        raise ApiError(0, "Timeout", "no answer in time", outcome_unknown=True)

    world.api.script.append(Fault(before=hold_back))
    world.run_pass()
    world.change_gang("two", {"spec": {"priority": -1}})
    world.add_gang("three", worker=5)
    world.clock.advance(1)
    world.run(2)
    with pytest.raises(ApiError):
        world.api.apply(late[0])
    world.deliver()
    world.run()
    assert sorted(world.phase(name) for name in ("two", "three")) == ["Admitted", "Waiting"]
    assert all(room.free["cpu"] >= 0 for room in world.state.view.node_infos.values())


def test_a_pass_that_meets_the_end_of_the_program_writes_nothing_and_fails_nowhere(world: GangWorld) -> None:
    world.add_gang("two", worker=2)
    world.stop_writing()
    world.run()
    assert world.phase("two") == ""
