"""Reservations count against the ResourceQuotas of their namespace, in the played cluster."""

from __future__ import annotations

from helpers.gangworld import BIND_TIMEOUT_SECONDS, GangWorld
from tfjob_controller.api.gang import placed_nodes
from tfjob_controller.gangscheduler.admission.queue import FIGURES_SECONDS


def test_what_is_reserved_counts_before_the_pods_exist_and_once_when_they_do(world: GangWorld) -> None:
    world.quota = {"requests.cpu": "5", "pods": "10"}
    world.add_gang("first", worker=3)
    world.run()
    world.add_gang("second", worker=3)
    world.run()
    assert (world.phase("first"), world.phase("second")) == ("Admitted", "Waiting")
    assert world.gang("second").status.message == "waits for quota: 3 \u00d7 cpu, 2 left"
    assert world.gang("second").status.missing[0].available == "2"
    world.bind("first")
    world.run()
    assert world.gang("second").status.message == "waits for quota: 3 \u00d7 cpu, 2 left"
    world.quota = {"requests.cpu": "6"}
    world.run()
    assert world.phase("second") == "Admitted"


def test_what_is_left_of_a_quota_alone_is_written_later_however_often_it_changes(world: GangWorld) -> None:
    world.quota = {"cpu": "1"}
    world.add_gang("large", worker=8)
    world.run()
    before = len(world.api.written("PATCH"))
    for left in ("2", "3", "1500m"):
        world.quota = {"cpu": left}
        world.run()
    assert len(world.api.written("PATCH")) == before
    assert world.gang("large").status.message == "waits for quota: 8 \u00d7 cpu, 1 left"
    world.clock.advance(FIGURES_SECONDS)
    world.run()
    assert world.gang("large").status.message == "waits for quota: 8 \u00d7 cpu, 1500m left"


def test_two_gangs_of_one_pass_do_not_get_the_same_quota(world: GangWorld) -> None:
    world.quota = {"pods": "4"}
    world.add_gang("first", worker=3)
    world.add_gang("second", worker=3)
    world.run()
    assert sorted((world.phase("first"), world.phase("second"))) == ["Admitted", "Waiting"]


def test_a_quota_is_free_again_when_an_attempt_is_given_up(world: GangWorld) -> None:
    world.quota = {"pods": "4"}
    world.add_gang("empty", worker=3)
    world.run()
    world.clock.advance(1)
    world.add_gang("second", worker=3)
    world.run()
    assert world.phase("second") == "Waiting"
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    world.run(3)
    assert world.phase("second") == "Admitted"


def test_a_gang_that_waits_for_quota_keeps_no_nodes_from_others(world: GangWorld) -> None:
    world.quota = {"cpu": "4"}
    world.add_gang("large", worker=8)
    world.run()
    world.clock.advance(300)
    world.admit("small", 4)
    world.run()
    assert world.gang("large").status.message == "waits for quota: 8 \u00d7 cpu, 0 left"


def test_nobody_shrinks_for_a_gang_that_waits_for_quota(world: GangWorld) -> None:
    world.start("elastic", 8, limits=(1, 8))
    world.quota = {"cpu": "8"}
    world.add_gang("next", worker=2)
    for _ in range(20):
        world.clock.advance(10)
        world.run()
    assert world.gang("elastic").status.target_members == {}
    assert "waits for quota" in world.gang("next").status.message


def test_an_elastic_gang_starts_with_what_its_quota_allows(world: GangWorld) -> None:
    world.quota = {"cpu": "5"}
    world.add_gang("elastic", limits=(2, 8), worker=8)
    world.run()
    assert len(placed_nodes(world.gang("elastic").status)) == 5


def test_members_that_are_added_to_a_bound_gang_count_too(world: GangWorld) -> None:
    world.quota = {"pods": "5"}
    world.start("grows", 2)
    members = [{"name": "worker", "count": 8, "resources": {"cpu": "1"}}]
    world.change_gang("grows", {"spec": {"members": members}})
    world.run(3)
    assert len(placed_nodes(world.gang("grows").status)) == 5
    world.create_pods("grows")
    world.quota = {"pods": "6"}
    world.run(3)
    assert len(placed_nodes(world.gang("grows").status)) == 6


def test_a_new_process_reserves_what_the_last_one_did(world: GangWorld) -> None:
    world.quota = {"cpu": "5"}
    world.add_gang("first", worker=3)
    world.run()
    world.add_gang("second", worker=3)
    world.run()
    world.start_scheduler()
    world.run()
    assert (world.phase("first"), world.phase("second")) == ("Admitted", "Waiting")


def test_a_gang_that_exceeds_the_cluster_is_unschedulable_with_any_quota(world: GangWorld) -> None:
    world.quota = {"cpu": "5"}
    world.add_gang("huge", worker=30)
    world.run()
    assert world.phase("huge") == "Unschedulable"
