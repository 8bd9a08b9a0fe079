"""Preemption under gangs that are made again and again: as preemptors that never start, as victims that never leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from helpers.fakeclock import FakeClock
from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from tfjob_controller.api.common.cluster import PriorityClass
from tfjob_controller.api.gang import BOUND, Gang, GangMeta, GangStatus, must_leave
from tfjob_controller.gangscheduler.admission.conduct import (
    BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_PLANS,
    MEMORY_SECONDS,
    Preemptors,
)
from tfjob_controller.gangscheduler.status.preempted import DELETION_SECONDS, EVICTION_SECONDS
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.preemption import PreemptionPolicy
from tfjob_controller.util.timestamps import parse_time_or_none

AFTER, GRACE = 10.0, 60.0
HOUR = 3600.0
STEP_SECONDS = 5.0


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """Two nodes of four CPUs, and two namespaces whose pods were admitted with the class `high`."""
    world = GangWorld(preemption=PreemptionPolicy(AFTER, GRACE))
    world.priority_classes = [PriorityClass(ObjectMeta(name="high"), 100)]
    world.put_node("a", 4)
    world.put_node("b", 4)
    for namespace in ("team", "evil"):
        with world.in_namespace(namespace):
            world.put_pod("once", {}, 0, phase="Succeeded", priority_class="high")
    yield world
    world.end_writes()
    world.stop_writing()


def own(world: GangWorld, *names: str) -> None:
    """What an owner of the first namespace does that follows."""
    with world.in_namespace(NAMESPACE):
        for name in names:
            world.delete_old_pods(name)
            world.create_pods(name)
    world.schedule()


def go_on(world: GangWorld, seconds: float, *steps: Callable[[], object]) -> None:
    end = world.clock.monotonic() + seconds
    while world.clock.monotonic() < end:
        world.run(2)
        for step in steps:
            step()
        world.clock.advance(STEP_SECONDS)


def asked(world: GangWorld) -> list[str]:
    """The gangs that were asked to leave, in order."""
    return [name for name, reason, _ in world.events.told if reason == "PreemptionRequested"]


def empty(world: GangWorld, name: str) -> None:
    world.add_gang(name, worker=8, priority=100, priority_class="high")


def make_anew(world: GangWorld) -> None:
    """Another Gang takes the place of the one that has no pods."""
    (old,) = (name for name in world.names() if name.startswith("empty"))
    world.remove_gang(old)
    empty(world, f"empty-{world.clock.monotonic()}")


def suspend_and_resume(world: GangWorld) -> None:
    (name,) = (name for name in world.names() if name.startswith("empty"))
    for suspend in (True, False):
        world.change_gang(name, {"spec": {"suspend": suspend}})
        world.run()


@pytest.mark.parametrize("again", [make_anew, suspend_and_resume])
def test_gangs_without_pods_that_come_again_and_again_evict_others_less_and_less(
    world: GangWorld, again: Callable[[GangWorld], None]
) -> None:
    """It was once a minute, for ever."""
    world.add_gang("honest", worker=8)
    go_on(world, GRACE + 30, lambda: own(world, "honest"))
    with world.in_namespace("evil"):
        empty(world, "empty")
    last = world.clock.monotonic()

    def attack() -> None:
        nonlocal last
        if world.clock.monotonic() - last > AFTER + BIND_TIMEOUT_SECONDS:
            last = world.clock.monotonic()
            with world.in_namespace("evil"):
                again(world)

    go_on(world, 6 * HOUR, lambda: own(world, "honest"), attack)
    assert 3 <= len(asked(world)) <= 14


def test_a_namespace_whose_gang_did_not_start_waits_and_says_so(world: GangWorld) -> None:
    world.add_gang("honest", worker=8)
    with world.in_namespace("evil"):
        for number in range(4):
            go_on(world, GRACE + 2 * STEP_SECONDS, lambda: own(world, "honest"))
            empty(world, f"empty-{number}")
            go_on(world, AFTER + STEP_SECONDS)
            assert len(asked(world)) == number + 1
            world.remove_gang(f"empty-{number}")
        go_on(world, 2 * STEP_SECONDS, lambda: own(world, "honest"))
        empty(world, "again")
        go_on(world, AFTER + STEP_SECONDS)
        words = world.gang("again").status.message
    assert "preempts no gang before 2026-" in words
    assert words.endswith("gangs were preempted for gangs of its namespace that did not start (4)")


EVIL = ("evil-a", "evil-b", "evil-c", "evil-d")


def stay(world: GangWorld, workers: int) -> None:
    """Gangs that never leave, which have any number as their priority, so that they come first in the queue."""
    with world.in_namespace("evil"):
        for name in EVIL:
            world.add_gang(name, worker=workers, priority=10**9)
        for _ in range(3):
            world.run()
            stay_on(world)
        assert all(world.phase(name) == BOUND for name in EVIL)


def stay_on(world: GangWorld) -> None:
    """Their owner: creates pods, and deletes those of earlier attempts alone."""
    with world.in_namespace("evil"):
        for name in world.names():
            if name in EVIL and not must_leave(world.gang(name)):
                world.delete_old_pods(name)
                world.create_pods(name)
    world.schedule()


def make_again(world: GangWorld, name: str, workers: int) -> None:
    with world.in_namespace("evil"):
        world.remove_gang(name)
        world.add_gang(name, worker=workers, priority=10**9)


def was_asked_long_ago(world: GangWorld, name: str, seconds: float) -> bool:
    preemption = world.gang(name).status.preemption
    since = parse_time_or_none(preemption.time) if preemption is not None else None
    return since is not None and (world.clock.now() - since).total_seconds() >= seconds


@pytest.mark.parametrize(
    "seconds", [pytest.param(DELETION_SECONDS, id="at the deadline"), pytest.param(DELETION_SECONDS - 10, id="before")]
)
def test_gangs_that_do_not_leave_and_are_made_again_keep_no_gang_out(world: GangWorld, seconds: float) -> None:
    """It was kept out for more than six hours."""
    stay(world, 2)
    world.clock.advance(GRACE)
    world.add_gang("honest", worker=8, priority=100, priority_class="high")

    def attack() -> None:
        for name in EVIL:
            if was_asked_long_ago(world, name, seconds):
                make_again(world, name, 2)
        stay_on(world)

    begin = world.clock.monotonic()
    while world.phase("honest") != BOUND and world.clock.monotonic() - begin < 6 * HOUR:
        go_on(world, STEP_SECONDS, attack, lambda: own(world, "honest"))
    assert world.clock.monotonic() - begin <= AFTER + DELETION_SECONDS + 6 * STEP_SECONDS


def test_a_namespace_whose_gangs_cannot_be_made_to_leave_is_asked_last(world: GangWorld) -> None:
    """Although it has the smallest gangs, which are asked first otherwise."""
    world.protected.add("evil")
    stay(world, 1)
    world.add_gang("low", worker=4)
    go_on(world, GRACE + STEP_SECONDS, lambda: own(world, "low"), lambda: stay_on(world))
    for number, name in enumerate(("first", "second")):
        world.add_gang(name, worker=4, priority=100, priority_class="high")
        go_on(
            world,
            AFTER + DELETION_SECONDS + EVICTION_SECONDS + 4 * STEP_SECONDS,
            lambda: own(world, "low"),
            lambda name=name: own(world, name),
            lambda: stay_on(world),
        )
        assert world.phase(name) == BOUND
        assert asked(world) == [*EVIL, *["low"] * (number + 1)]
        world.remove_gang(name)
        for each in EVIL:
            make_again(world, each, 1)
        go_on(world, GRACE + 2 * STEP_SECONDS, lambda: stay_on(world), lambda: own(world, "low"))


def gang(name: str, *, namespace: str = "evil", generation: int = 1, attempt: int = 0) -> Gang:
    meta = GangMeta(name=name, namespace=namespace, uid=name, generation=generation)
    return Gang(meta, status=GangStatus(attempt=attempt))


def test_each_gang_that_does_not_start_doubles_the_time_up_to_a_bound() -> None:
    clock = FakeClock()
    preemptors = Preemptors(clock)
    waits = []
    for number in range(10):
        preemptors.note_begun(gang(f"empty-{number}"))
        failures, until = preemptors.blocked(gang("next")) or (0, 0.0)
        assert failures == number + 1
        waits.append(until - clock.monotonic())
        clock.advance(waits[-1])
        assert preemptors.blocked(gang("next")) is None
    assert waits[:3] == [BACKOFF_SECONDS, 2 * BACKOFF_SECONDS, 4 * BACKOFF_SECONDS]
    assert waits[-1] == MAX_BACKOFF_SECONDS


def test_a_namespace_is_forgiven_once_the_gang_runs_that_others_left_for() -> None:
    preemptors = Preemptors(FakeClock())
    preemptors.note_begun(gang("first"))
    preemptors.note_bound(gang("other"))
    assert preemptors.blocked(gang("next")) is not None
    preemptors.note_bound(gang("first", attempt=1))
    assert preemptors.blocked(gang("next")) is None


def test_other_namespaces_do_not_wait() -> None:
    preemptors = Preemptors(FakeClock())
    preemptors.note_begun(gang("first"))
    assert preemptors.blocked(gang("first", namespace="other")) is None


@pytest.mark.parametrize("changed", [{"generation": 2}, {"attempt": 1}])
def test_a_gang_that_waits_may_ask_more_gangs_a_few_times_and_as_another_one_once_it_has_changed(
    changed: dict[str, int],
) -> None:
    preemptors = Preemptors(FakeClock())
    for _ in range(MAX_PLANS):
        assert preemptors.blocked(gang("first")) is None
        preemptors.note_begun(gang("first"))
    assert preemptors.blocked(gang("first")) is not None
    preemptors = Preemptors(FakeClock())
    preemptors.note_begun(gang("first"))
    assert preemptors.blocked(gang("first")) is None
    assert preemptors.blocked(gang("first", **changed)) is not None


def test_what_a_namespace_did_long_ago_is_forgotten() -> None:
    clock = FakeClock()
    preemptors = Preemptors(clock)
    preemptors.note_begun(gang("first"))
    clock.advance(BACKOFF_SECONDS + MEMORY_SECONDS + 1)
    preemptors.note_begun(gang("second"))
    assert preemptors.blocked(gang("next")) == (1, clock.monotonic() + BACKOFF_SECONDS)
