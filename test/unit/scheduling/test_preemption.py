"""Which running gangs leave their nodes for a gang of higher priority."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.gangs import a_gang, a_node, workers
from helpers.scalingworld import ScalingWorld
from tfjob_controller.api.gang import Gang, GangAnnotations, GangStatus, placed_nodes
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.decisions import QueuedGang
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.podsets import last_saved_time
from tfjob_controller.scheduling.preemption import (
    Claim,
    PreemptionDecider,
    PreemptionPlan,
    PreemptionPolicy,
    RunningGang,
)
from tfjob_controller.util.timestamps import parse_time_or_none


class _World(ScalingWorld):
    """Gangs of one CPU for each worker. What runs has run for an hour, unless the test says otherwise."""

    def runs_on(self, name: str, node: str, count: int, *, priority: int = 0, since: float = 3600.0) -> None:
        bound = (self.now - timedelta(seconds=since)).isoformat()
        members = [f"worker-{index}" for index in range(count)]
        self.runs(name, [(node, members)], workers(count), priority=priority, bound_time=bound)

    def waits(self, name: str, count: int, *, priority: int, seconds: float = 10.0, **spec: Any) -> None:
        self.arrives(name, workers(count), priority=priority, **spec)
        self.advance(seconds)

    def rules(
        self,
        claims: Sequence[Claim] = (),
        leaving: Sequence[str] = (),
        saved: dict[str, float] | None = None,
        freed: Sequence[FreedCapacity] = (),
        shrinkable: bool = False,
        never: Sequence[str] = (),
    ) -> PreemptionDecider:
        def running(gang: Gang) -> RunningGang:
            bound = parse_time_or_none(gang.status.bound_time)
            seconds = (saved or {}).get(gang.metadata.name)
            last = bound if seconds is None else self.now - timedelta(seconds=seconds)
            members = len(placed_nodes(gang.status))
            is_leaving = gang.metadata.name in leaving
            return RunningGang(key_of(gang), gang.spec.priority, members, bound, last, is_leaving)

        def priority_of(gang: Gang) -> int | None:
            return None if gang.metadata.name in never else gang.spec.priority

        def could_shrink(queued: QueuedGang) -> bool:
            return shrinkable

        return PreemptionDecider(
            self.view,
            map(running, self.running.values()),
            claims,
            self.now,
            PreemptionPolicy(),
            priority_of=priority_of,
            freed=freed,
            could_shrink=could_shrink,
        )

    def begin(self, **rules: Any) -> PreemptionPlan:
        return self.rules(**rules).new_plan(self.queue())

    def victims(self, **rules: Any) -> list[str]:
        return [key.removeprefix("ns/") for key in self.begin(**rules).victims]


@pytest.fixture
def world() -> _World:
    """Two nodes of four CPUs."""
    return _World(a_node("a", "4"), a_node("b", "4"))


def test_a_gang_of_higher_priority_takes_the_place_of_a_whole_gang(world: _World) -> None:
    world.runs_on("low", "a", 4)
    world.runs_on("other", "b", 4, priority=5)
    world.waits("high", 3, priority=5)
    plan = world.begin()
    assert (plan.preemptor, plan.victims) == ("ns/high", ("ns/low",))
    assert plan.nominated is not None
    assert plan.nominated.nodes == {"a"}
    assert plan.nominated.released["a"]["cpu"] == 3000


@pytest.fixture
def full(world: _World) -> _World:
    """A gang on each node."""
    world.runs_on("one", "a", 4)
    world.runs_on("two", "b", 4)
    return world


def test_a_gang_preempts_after_it_has_waited(full: _World) -> None:
    full.waits("high", 4, priority=1, seconds=9)
    plan = full.begin()
    assert plan.victims == ()
    assert plan.recheck_time == full.now + timedelta(seconds=1)
    full.advance(1)
    assert full.victims() == ["one"]


def test_a_gang_that_was_bound_lately_is_no_victim_yet(world: _World) -> None:
    world.runs_on("young", "a", 4, since=49)
    world.runs_on("younger", "b", 4, since=30)
    world.waits("high", 4, priority=1)
    plan = world.begin()
    assert plan.victims == ()
    assert plan.recheck_time == world.now + timedelta(seconds=1)
    world.advance(1)
    assert world.victims() == ["young"]


def test_nobody_leaves_for_a_gang_that_fits_once_terminating_pods_are_gone(world: _World) -> None:
    world.runs_on("low", "a", 4)
    world.runs_on("ends", "b", 4)
    world.waits("high", 4, priority=1)
    assert world.begin(freed=[FreedCapacity("b", {"cpu": 4000, "pods": 4})]) == PreemptionPlan()


def test_elastic_gangs_shrink_before_any_gang_leaves(full: _World) -> None:
    full.waits("high", 4, priority=1)
    assert full.begin(shrinkable=True) == PreemptionPlan()


def test_an_elastic_gang_preempts_for_its_minimum_only(full: _World) -> None:
    full.waits("high", 8, priority=1, min_members={"worker": 4})
    assert full.victims() == ["one"]


@pytest.mark.parametrize(
    ("one", "two", "victim"),
    [
        ({"priority": 1}, {"priority": 0}, "two"),
        ({"count": 4}, {"count": 3}, "two"),
        ({"since": 400}, {"since": 300}, "two"),
        ({"since": 300}, {"since": 400}, "one"),
        ({}, {}, "one"),
        ({"priority": 1, "count": 3}, {"priority": 0, "count": 4}, "two"),
        ({"count": 3, "since": 400}, {"count": 4, "since": 300}, "one"),
    ],
    ids=["priority", "members", "age", "age, otherwise", "name", "priority before members", "members before age"],
)
def test_the_order_of_victims(world: _World, one: dict[str, Any], two: dict[str, Any], victim: str) -> None:
    world.runs_on("one", "a", **{"count": 4, **one})
    world.runs_on("two", "b", **{"count": 4, **two})
    world.waits("high", 3, priority=9)
    assert world.victims() == [victim]


def test_of_equal_gangs_the_one_whose_last_checkpoint_is_young_leaves(world: _World) -> None:
    world.runs_on("one", "a", 4, since=400)
    world.runs_on("two", "b", 4, since=500)
    world.waits("high", 4, priority=1)
    assert world.victims(saved={"two": 30.0}) == ["two"]


def test_a_gang_that_never_preempts_leaves_that_to_the_gangs_behind_it(full: _World) -> None:
    full.waits("never", 4, priority=9)
    full.waits("high", 4, priority=5)
    plan = full.begin(never=["never"])
    assert (plan.preemptor, plan.victims) == ("ns/high", ("ns/one",))


def test_a_gang_for_which_no_victims_are_enough_does_not_stop_those_behind_it(world: _World) -> None:
    world.runs_on("low", "a", 4)
    world.runs_on("same", "b", 4, priority=9)
    world.waits("large", 8, priority=9)
    world.waits("small", 4, priority=5)
    assert world.begin().preemptor == "ns/small"


def test_a_gang_whose_last_attempt_was_given_up_preempts_nobody(full: _World) -> None:
    """One that is admitted and whose pods never come would otherwise preempt gang after gang."""
    full.waits("high", 4, priority=1)
    failed = full.waiting["ns/high"]
    full.waiting["ns/high"] = _requeued(failed, (full.now - timedelta(seconds=20)).isoformat())
    assert full.begin() == PreemptionPlan()


def _requeued(gang: Gang, moment: str) -> Gang:
    return replace(gang, status=replace(gang.status, requeue_time=moment))


def test_while_a_victim_leaves_its_nodes_are_nominated_and_nobody_else_is_asked(full: _World) -> None:
    full.waits("high", 4, priority=1)
    claims = [Claim("ns/high", full.now)]
    plan = full.rules(claims, leaving=["one"]).ongoing_plan(full.queue())
    assert (plan.preemptor, plan.victims) == ("ns/high", ())
    assert plan.nominated is not None
    assert plan.nominated.nodes == {"a"}


def test_what_a_victim_has_left_stays_nominated_until_the_preemptor_starts(world: _World) -> None:
    world.runs_on("two", "b", 4)
    world.waits("high", 4, priority=1)
    world.waits("higher", 4, priority=9)
    world.nominated = world.rules([Claim("ns/high", world.now)]).ongoing_plan(world.queue()).nominated
    assert world.admit() == ["ns/high"]


def test_it_does_not_stay_nominated_for_ever(world: _World) -> None:
    world.waits("high", 4, priority=1)
    claim = Claim("ns/high", world.now)
    world.advance(300)
    assert world.rules([claim]).ongoing_plan(world.queue()) == PreemptionPlan()


def test_nothing_is_nominated_for_a_gang_that_does_not_wait_any_more(world: _World) -> None:
    world.runs_on("one", "a", 4)
    assert world.rules([Claim("ns/gone", world.now)], leaving=["one"]).ongoing_plan(world.queue()) == PreemptionPlan()


def test_a_gang_that_leaves_already_is_no_victim_again(full: _World) -> None:
    full.waits("high", 8, priority=1)
    assert full.victims(leaving=["one"]) == ["two"]


@pytest.mark.parametrize(
    ("checkpoint", "saved"),
    [
        ("2026-11-21T11:30:00Z", "11:30"),
        ("2026-11-21T10:00:00Z", "11:00"),
        ("yesterday", "11:00"),
        ("2026-11-21T11:30:00Z" + " " * 40, "11:00"),
    ],
    ids=["later", "before it was bound", "invalid", "too long"],
)
def test_work_is_saved_by_the_last_checkpoint_since_the_gang_was_bound(checkpoint: str, saved: str) -> None:
    gang = a_gang("a", status=GangStatus(bound_time="2026-11-21T11:00:00Z"))
    gang = replace(gang, metadata=replace(gang.metadata, annotations=GangAnnotations(checkpoint)))
    found = last_saved_time(gang)
    assert found is not None
    assert f"{found:%H:%M}" == saved
