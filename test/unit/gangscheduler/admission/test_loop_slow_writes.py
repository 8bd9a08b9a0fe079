"""The admission loop while statuses are being written: it waits for no write, and gives no capacity away twice."""

from __future__ import annotations

from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld


def test_an_admission_that_is_being_written_keeps_its_capacity_and_is_written_once(world: GangWorld) -> None:
    world.slow_writes()
    world.add_gang("one", worker=5)
    world.run()
    world.add_gang("two", worker=5, priority=1)
    for _ in range(3):
        world.state.enqueue(f"{NAMESPACE}/one")
        world.run()
    assert world.state.view.statistics().reserved_members == 5
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("one", "two")] == ["Admitted", "Waiting"]
    assert world.state.view.statistics().reserved_members == 5
    assert [request.path.split("/")[-2] for request in world.api.written("PATCH")] == ["one", "two"]


def test_the_nodes_of_members_that_are_being_written_stay_theirs(world: GangWorld) -> None:
    world.start("one", 3)
    world.slow_writes()
    world.resize("one", 9)
    world.run()
    reserved = dict(world.state.view.reserved_members(f"{NAMESPACE}/one"))
    assert len(reserved) == 8
    world.put_node("c", 4)
    world.run()
    assert world.state.view.reserved_members(f"{NAMESPACE}/one") == reserved
    world.end_writes()
    world.run(2)
    assert world.gang("one").status.members == "9/9"


def test_a_gang_that_changed_while_it_was_written_is_processed_as_soon_as_the_write_has_failed(
    world: GangWorld,
) -> None:
    world.slow_writes()
    world.add_gang("one", worker=9)
    world.run()
    world.resize("one", 2)
    world.run()
    world.end_writes()
    world.state.take()  # what the watch has marked since
    world.run()
    assert world.phase("one") == "Admitted"


def fill(world: GangWorld) -> None:
    """A gang has all nodes."""
    world.add_gang("first", worker=8)
    world.run()
    world.clock.advance(1)


def test_a_gang_whose_report_is_being_written_keeps_its_place_in_the_queue(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.clock.advance(1)
    world.add_gang("younger", worker=8)
    world.remove_gang("first")
    world.run(2)
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("older", "younger")] == ["Admitted", "Waiting"]
    assert world.state.view.statistics().reserved_members == 8


def test_a_gang_whose_report_is_being_written_still_holds_back_those_behind_it(world: GangWorld) -> None:
    world.add_gang("first", worker=3)
    world.run()
    world.clock.advance(1)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.clock.advance(BIND_TIMEOUT_SECONDS - 20)
    world.add_gang("younger", worker=2)
    world.run()
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("older", "younger")] == ["Waiting", "Waiting"]
    assert world.state.view.statistics().reserved_members == 3


def test_a_gang_that_leaves_before_its_report_is_written_keeps_nothing(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.remove_gang("first")
    world.run()
    assert world.state.view.statistics().reserved_members == 8, "it fits, and is admitted after its report"
    world.remove_gang("older")
    world.add_gang("younger", worker=8)
    world.end_writes()
    for _ in range(3):
        world.clock.advance(1)
        world.run()
    assert world.phase("younger") == "Admitted"
    assert world.state.view.statistics().reserved_members == 8


def test_an_admission_replaces_a_report_that_has_not_begun(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("hanging", worker=6)
    world.run()
    world.add_gang("small", worker=2)
    world.run()
    world.remove_gang("first")
    world.run()
    world.end_writes()
    paths = [request.path.split("/")[-2] for request in world.api.written("PATCH")]
    assert paths.count("small") == 1
    assert world.phase("small") == "Admitted"


def test_a_gang_that_is_suspended_while_its_admission_is_being_written_is_released(world: GangWorld) -> None:
    world.slow_writes(is_after=True)
    world.add_gang("one", worker=8)
    world.run()
    assert world.phase("one") == "Admitted", "only the response is missing"
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    assert world.state.view.statistics().reserved_members == 8
    world.end_writes()
    world.run(3)
    assert world.phase("one") == "Released"
    assert world.state.view.statistics().reserved_members == 0
