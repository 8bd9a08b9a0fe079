"""Preemption on random small clusters: what victims have in common, however gangs run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import timedelta

from hypothesis import event, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.gangs import a_node, workers
from helpers.scalingworld import ScalingWorld
from tfjob_controller.api.gang import Gang
from tfjob_controller.scheduling.placement import place
from tfjob_controller.scheduling.podsets import pod_sets_of
from tfjob_controller.scheduling.preemption import PreemptionDecider, PreemptionPlan, PreemptionPolicy, RunningGang
from tfjob_controller.scheduling.whatif import WhatIfView

POLICY = PreemptionPolicy(after_seconds=10.0, grace_seconds=60.0)

# Workers, CPUs of each, priority, and for how many seconds it has run.
gangs = st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(0, 3), st.sampled_from([10.0, 60.0, 600.0]))
clusters = st.lists(st.integers(1, 5), min_size=1, max_size=3)
heads = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 4))


def a_world(
    cpus: Sequence[int], running: Iterable[tuple[int, int, int, float]], head: tuple[int, int, int]
) -> tuple[ScalingWorld, PreemptionPlan]:
    """These gangs placed by the live rules as far as they fit, and what is planned for one that has waited."""
    world = ScalingWorld(*(a_node(f"n{number}", str(cpu)) for number, cpu in enumerate(cpus)))
    bound: dict[str, RunningGang] = {}
    for number, (count, cpu, priority, seconds) in enumerate(running):
        world.arrives(f"r{number}", workers(count, str(cpu)), priority=priority)
        for key in world.admit():
            since = world.now - timedelta(seconds=seconds - POLICY.after_seconds)
            bound[key] = RunningGang(key, priority, count, since, since)
        world.waiting.clear()
    count, cpu, priority = head
    world.arrives("head", workers(count, str(cpu)), priority=priority)
    world.advance(POLICY.after_seconds)
    rules = PreemptionDecider(
        world.view, bound.values(), [], world.now, POLICY, priority_of=lambda gang: gang.spec.priority
    )
    return world, rules.new_plan(world.queue())


def fits(world: ScalingWorld, head: Gang, gone: Iterable[str]) -> bool:
    freed = [capacity for key in gone for capacity in world.view.capacity_of(key)]
    return place(WhatIfView(world.view, freed), pod_sets_of(head.spec)) is not None


def of_lower_priority(world: ScalingWorld, head: Gang) -> list[str]:
    """Returns the gangs of lower priority."""
    return [key for key, gang in world.running.items() if gang.spec.priority < head.spec.priority]


@given(clusters, st.lists(gangs, max_size=5), heads)
@settings(max_examples=examples(300), deadline=None)
def test_victims_are_of_lower_priority_make_room_and_are_all_needed(
    cpus: list[int], running: list[tuple[int, int, int, float]], head: tuple[int, int, int]
) -> None:
    world, plan = a_world(cpus, running, head)
    gang = world.waiting["ns/head"]
    seconds = {f"ns/r{number}": each[3] for number, each in enumerate(running)}
    event(f"{len(plan.victims)} victims")
    for key in plan.victims:
        assert world.running[key].spec.priority < gang.spec.priority
        assert seconds[key] >= POLICY.grace_seconds
    if plan.victims:
        assert fits(world, gang, plan.victims)
        for key in plan.victims:
            assert not fits(world, gang, set(plan.victims) - {key}), f"{key} leaves for nothing"


@given(clusters, st.lists(gangs, max_size=5), heads)
@settings(max_examples=examples(300), deadline=None)
def test_if_any_victims_make_room_some_are_found_and_their_highest_priority_is_the_least_possible(
    cpus: list[int], running: list[tuple[int, int, int, float]], head: tuple[int, int, int]
) -> None:
    world, plan = a_world(cpus, running, head)
    gang = world.waiting["ns/head"]
    seconds = {f"ns/r{number}": each[3] for number, each in enumerate(running)}
    candidates = [key for key in of_lower_priority(world, gang) if seconds[key] >= POLICY.grace_seconds]
    ways = [
        some
        for size in range(len(candidates) + 1)
        for some in itertools.combinations(candidates, size)
        if fits(world, gang, some)
    ]
    if not ways or () in ways:
        assert not plan.victims
        return

    def highest(victims: Iterable[str]) -> int:
        return max(world.running[key].spec.priority for key in victims)

    assert highest(plan.victims) == min(map(highest, ways))
