"""The rules of scaling on random small clusters, and over random lives of gangs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.gangs import a_node, a_pod, workers
from helpers.scalingworld import SCALE, ScalingWorld, elastic
from tfjob_controller.api.gang import Member
from tfjob_controller.scheduling.autoscaling.elasticgang import ElasticGang, ResizeRequest
from tfjob_controller.scheduling.nodeinfo import FreedCapacity
from tfjob_controller.scheduling.placement import Placement, place
from tfjob_controller.scheduling.podsets import pod_sets_of
from tfjob_controller.scheduling.whatif import WhatIfView

DOWN, UP = SCALE.scale_down_after_seconds, SCALE.scale_up_after_seconds
PS = Member("ps", 1, {"cpu": "1"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a gang: its workers, the least of them, what each takes; whether it has a parameter server, its priority."""

    count: int
    least: int
    cpu: int
    has_ps: bool
    priority: int
    is_elastic: bool = True
    is_indexed: bool = False

    def members(self) -> list[Member]:
        return [*([PS] if self.has_ps else []), workers(self.count, str(self.cpu), indexed=self.is_indexed)]

    def limits(self) -> dict[str, dict[str, int]]:
        return elastic(min(self.least, self.count), self.count + 2) if self.is_elastic else {}


shapes = st.builds(
    Shape,
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 1),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
)
clusters = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def a_world(cpus: Sequence[int], running: Sequence[Shape], head: Shape, *, is_full: bool = False) -> ScalingWorld:
    """These gangs placed by the live rules as far as they fit, and one that has waited long; `is_full`: others too."""
    world = ScalingWorld(*(a_node(f"n{number}", str(cpu)) for number, cpu in enumerate(cpus)))
    for number, shape in enumerate(running):
        world.arrives(f"r{number}", *shape.members(), priority=shape.priority, **shape.limits())
        world.admit()
    world.waiting.clear()
    if is_full:
        for name in list(world.view.node_infos):
            world.view.set_pod(a_pod(f"other-{name}", name, f"{world.view.free(name)['cpu']}m"))
    world.arrives("head", *head.members(), priority=head.priority, **head.limits())
    world.advance(DOWN)
    return world


def fits(world: ScalingWorld, gone: Sequence[tuple[ElasticGang, str]]) -> bool:
    (head,) = world.waiting.values()
    freed = [FreedCapacity(gang.nodes[member], dict(gang.pod_set.requests)) for gang, member in gone]
    return isinstance(place(WhatIfView(world.view, freed), pod_sets_of(head.spec)), Placement)


def fewer_of(gang: ElasticGang) -> Iterator[tuple[tuple[ElasticGang, str], ...]]:
    """All sets of members that it may lose."""
    may_go = sorted(
        ((gang, member) for member in gang.nodes if member != "worker-0"), key=lambda each: -int(each[1][7:])
    )
    for count in range(min(len(gang.nodes) - gang.min_members, len(may_go)) + 1):
        if gang.is_indexed:
            yield tuple(may_go[:count])
            continue
        yield from itertools.combinations(may_go, count)


def any_way(world: ScalingWorld) -> bool:
    """By trying all sets of members of all gangs that may give some."""
    (head,) = world.waiting.values()
    givers = [each for each in world.elastic() if each.priority <= head.spec.priority]
    return any(
        fits(world, [each for some in chosen for each in some])
        for chosen in itertools.product(*(list(fewer_of(each)) for each in givers))
    )


def gone_with(world: ScalingWorld, resizes: Sequence[ResizeRequest]) -> list[tuple[ElasticGang, str]]:
    gangs = {each.key: each for each in world.elastic()}
    return [(gangs[each.key], member) for each in resizes for member in each.leaving]


@settings(max_examples=examples(250), deadline=None)
@given(clusters, st.lists(shapes, min_size=1, max_size=3), shapes, st.booleans())
def test_there_is_a_plan_where_there_is_a_way_and_it_keeps_all_rules(
    cpus: list[int], running: list[Shape], head: Shape, is_full: bool
) -> None:
    world = a_world(cpus, running, head, is_full=is_full)
    is_fitting = fits(world, ())
    way = not is_fitting and any_way(world)
    gangs = {each.key: each for each in world.elastic()}
    plan = world.plan()
    event(f"there is a way: {way}")
    assert bool(plan.resizes) == way
    for each in plan.resizes:
        gang = gangs[each.key]
        assert each.target >= gang.min_members
        assert len(each.leaving) == len(gang.nodes) - each.target > 0
        assert set(each.leaving) <= gang.nodes.keys() - {"worker-0"}
        assert gang.priority <= head.priority
        if gang.is_indexed:
            assert each.leaving == tuple(f"worker-{index}" for index in range(each.target, len(gang.nodes)))
    gone = gone_with(world, plan.resizes)
    # Of an Indexed Job only the member of the lowest index can be left out.
    spared = [
        index
        for index, (gang, member) in enumerate(gone)
        if not gang.is_indexed or member == f"worker-{gangs[gang.key].count - sum(each is gang for each, _ in gone)}"
    ]
    assert not any(fits(world, [*gone[:index], *gone[index + 1 :]]) for index in spared)
    assert world.plan() == plan
    world.follow(plan.resizes)
    assert bool(world.admit()) == (way or is_fitting)


@settings(max_examples=examples(100), deadline=None)
@given(clusters, st.lists(shapes, min_size=1, max_size=3), shapes, st.lists(shapes, max_size=3), st.data())
def test_released_capacity_is_for_the_waiting_gang_despite_later_ones(
    cpus: list[int], running: list[Shape], head: Shape, others: list[Shape], data: st.DataObject
) -> None:
    world = a_world(cpus, running, head, is_full=True)
    plan = world.plan()
    if not plan.resizes:
        return
    left = list(plan.resizes)
    for number, shape in enumerate(others):
        world.arrives(f"o{number}", *shape.members(), priority=shape.priority, **shape.limits())
        if left and data.draw(st.booleans(), "the next follows"):
            world.follow([left.pop()])
        world.advance(data.draw(st.sampled_from([1.0, DOWN]), "seconds") if not left else 1)
        world.plan()
        world.admit()
    world.follow(left)
    world.plan()
    world.admit()
    assert "ns/head" in world.running


@settings(max_examples=examples(100), deadline=None)
@given(clusters, st.lists(shapes, min_size=1, max_size=4), st.lists(shapes, max_size=3))
def test_under_constant_load_the_number_of_resizes_is_bounded(
    cpus: list[int], running: list[Shape], waiting: list[Shape]
) -> None:
    world = a_world(cpus, running, Shape(1, 1, 1, False, 0))
    for number, shape in enumerate(waiting):
        world.arrives(f"w{number}", *shape.members(), priority=shape.priority, **shape.limits())
    arrived = len(running) + len(waiting) + 1
    # Each gang can be shrunk to its least once for each that starts, and each can grow to its most once at the end.
    bound = arrived * (arrived + sum(each.count + 2 for each in (*running, *waiting)) + 3)
    for _ in range(40):
        world.round()
        world.advance(UP / 2)
    done = world.resizes
    assert done <= bound
    for _ in range(40):
        world.round()
        world.advance(UP / 2)
    assert world.resizes == done


@settings(max_examples=examples(100), deadline=None)
@given(clusters, st.lists(shapes, min_size=1, max_size=3))
def test_gangs_grow_until_none_fits_any_more_or_all_have_their_most(cpus: list[int], running: list[Shape]) -> None:
    world = a_world(cpus, running, Shape(1, 1, 1, False, 0))
    world.waiting.clear()
    for _ in range(20):
        world.advance(UP)
        plan, _ = world.round()
        assert len(plan.resizes) <= 1
    for each in world.elastic():
        assert each.count <= each.max_members
        one = [pod_set.with_count(1) for pod_set in (each.pod_set,)]
        assert len(each.nodes) == each.max_members or not isinstance(place(world.view, one), Placement)


@settings(max_examples=examples(60), deadline=None)
@given(clusters, st.lists(shapes, min_size=1, max_size=3), st.lists(shapes, min_size=1, max_size=2), st.data())
def test_nobody_grows_while_a_gang_waits(
    cpus: list[int], running: list[Shape], waiting: list[Shape], data: st.DataObject
) -> None:
    world = a_world(cpus, running, waiting[0])
    for number, shape in enumerate(waiting):
        world.arrives(f"w{number}", *shape.members(), priority=shape.priority, **shape.limits())
    for _ in range(6):
        world.advance(data.draw(st.sampled_from([1.0, DOWN, UP]), "seconds"))
        is_waited_for = bool(world.waiting)
        plan, _ = world.round()
        assert not (is_waited_for and any(not each.leaving for each in plan.resizes))
