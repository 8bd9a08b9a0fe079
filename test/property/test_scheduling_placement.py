"""Placement against brute force on small clusters."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.gangs import GPU, a_node, a_view
from tfjob_controller.api.common.cluster import Node
from tfjob_controller.api.gang import Member, kind_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.placement import MemberNodes, Placement, place
from tfjob_controller.scheduling.podsets import PodSet, pod_set_of, requests_by_kind

nodes = st.lists(
    st.builds(
        lambda cpu, gpu, pods, zone: (str(cpu), str(gpu), str(pods), zone),
        st.integers(0, 6),
        st.integers(0, 4),
        st.integers(0, 5),
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=6,
)
kinds = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=4
)


def made(shapes: Sequence[tuple[str, str, str, str]]) -> list[Node]:
    return [
        a_node(f"n{index}", cpu, gpu=gpu, pods=pods, labels={"zone": zone})
        for index, (cpu, gpu, pods, zone) in enumerate(shapes)
    ]


def demanded(shapes: Sequence[tuple[int, int, int, bool]]) -> list[PodSet]:
    """At most eight pods in all."""
    left = 8
    found = []
    for index, (count, cpu, gpu, pinned) in enumerate(shapes):
        count = min(count, left)
        left -= count
        selector = {"zone": "a"} if pinned else {}
        found.append(pod_set_of(Member(f"k{index}", count, {"cpu": str(cpu), GPU: str(gpu)}, selector)))
    return found


def room_of(cluster: Sequence[Node]) -> dict[str, dict[str, int]]:
    view = a_view(*cluster)
    return {node.metadata.name: dict(view.free(node.metadata.name)) for node in cluster}


def fewest_nodes(cluster: Sequence[Node], pod_sets: Sequence[PodSet]) -> int | None:
    """By trying every node for every pod; None if there is no way."""
    names = [node.metadata.name for node in cluster]
    suits = {
        (each.name, node.metadata.name): not each.node_filter.rejection(node) for each in pod_sets for node in cluster
    }

    @functools.cache
    def best(kind: int, number: int, least_node: int, rooms: tuple[tuple[int, ...], ...], used: int) -> int | None:
        if kind == len(pod_sets):
            return used.bit_count()
        pod_set = pod_sets[kind]
        if number == pod_set.count:
            return best(kind + 1, 0, 0, rooms, used)
        found = []
        # Pods of one kind are alike: their nodes in rising order are enough.
        for index in range(least_node, len(names)):
            if not suits[pod_set.name, names[index]]:
                continue
            room = dict(zip(resources, rooms[index], strict=True))
            if all(room[name] >= amount for name, amount in pod_set.requests):
                taken = tuple(room[name] - dict(pod_set.requests).get(name, 0) for name in resources)
                after = (*rooms[:index], taken, *rooms[index + 1 :])
                found.append(best(kind, number + 1, index, after, used | 1 << index))
        return min((each for each in found if each is not None), default=None)

    resources = ("cpu", GPU, "pods")
    free = room_of(cluster)
    return best(0, 0, 0, tuple(tuple(free[name].get(resource, 0) for resource in resources) for name in names), 0)


def check_room(view: ClusterView, pod_sets: Sequence[PodSet], placement: Placement) -> None:
    used: dict[str, dict[str, int]] = {}
    amounts = {each.name: dict(each.requests) for each in pod_sets}
    for member_id, node in placement.node_of.items():
        for name, amount in amounts[kind_of(member_id)].items():
            used.setdefault(node, {}).setdefault(name, 0)
            used[node][name] += amount
    for node, taken in used.items():
        assert all(view.free(node).get(name, 0) >= amount for name, amount in taken.items()), node


@settings(max_examples=examples(300), deadline=None)
@given(nodes, kinds)
def test_it_finds_a_fit_whenever_there_is_one_and_never_commits_too_much(
    node_shapes: list[tuple[str, str, str, str]], kind_shapes: list[tuple[int, int, int, bool]]
) -> None:
    cluster, pod_sets = made(node_shapes), demanded(kind_shapes)
    view = a_view(*cluster)
    found = place(view, pod_sets)
    fewest = fewest_nodes(cluster, pod_sets)
    if fewest is None:
        assert found is None
        return
    assert isinstance(found, Placement)
    assert len(found.node_of) == sum(each.count for each in pod_sets)
    check_room(view, pod_sets, found)
    suited = {each.name: each.node_filter for each in pod_sets}
    by_name = {node.metadata.name: node for node in cluster}
    assert not any(suited[kind_of(member)].rejection(by_name[node]) for member, node in found.node_of.items())
    if fewest == 1 or len(pod_sets) == 1:
        assert len(set(found.node_of.values())) == fewest, "fewest nodes, exactly"


@settings(max_examples=examples(150), deadline=None)
@given(nodes, kinds, st.randoms(use_true_random=False))
def test_the_order_of_events_changes_nothing(
    node_shapes: list[tuple[str, str, str, str]], kind_shapes: list[tuple[int, int, int, bool]], random: object
) -> None:
    cluster, pod_sets = made(node_shapes), demanded(kind_shapes)
    first = place(a_view(*cluster), pod_sets, ("zone",))
    assert place(a_view(*reversed(cluster)), pod_sets, ("zone",)) == first


@settings(max_examples=examples(150), deadline=None)
@given(nodes, st.tuples(st.integers(1, 8), st.integers(0, 3), st.integers(0, 2), st.booleans()), st.integers(0, 8))
def test_as_many_as_fit_start_if_the_least_do(
    node_shapes: list[tuple[str, str, str, str]], kind: tuple[int, int, int, bool], least: int
) -> None:
    cluster, (pod_set,) = made(node_shapes), demanded([kind])
    most = max(
        (n for n in range(pod_set.count + 1) if fewest_nodes(cluster, [pod_set.with_count(n)]) is not None), default=0
    )
    elastic = pod_set_of(
        Member("k0", pod_set.count, {"cpu": str(kind[1]), GPU: str(kind[2])}, {"zone": "a"} if kind[3] else {}), least
    )
    found = place(a_view(*cluster), [elastic])
    if most < elastic.min_count:
        assert found is None
    else:
        assert isinstance(found, Placement)
        assert found.counts == {"k0": most}


@settings(max_examples=examples(150), deadline=None)
@given(nodes, kinds)
def test_one_zone_is_enough_where_one_can_take_all(
    node_shapes: list[tuple[str, str, str, str]], kind_shapes: list[tuple[int, int, int, bool]]
) -> None:
    cluster, pod_sets = made(node_shapes), demanded(kind_shapes)
    zone_of: Mapping[str, str] = {node.metadata.name: node.metadata.labels["zone"] for node in cluster}
    inside = [
        fewest_nodes([node for node in cluster if zone_of[node.metadata.name] == zone], pod_sets) for zone in "ab"
    ]
    found = place(a_view(*cluster), pod_sets, ("zone",))
    if any(each is not None for each in inside):
        assert isinstance(found, Placement)
        assert len({zone_of[node] for node in found.node_of.values()}) <= 1


def best_node(view: ClusterView, pod_set: PodSet, tiers: Sequence[set[str]], exclude: set[str]) -> str | None:
    """By placing one pod on the nodes of each tier alone."""
    one = pod_set.with_count(1)
    for tier in tiers:
        found = place(view, [one], allowed=lambda info, names=tier: info.name in names - exclude)  # type: ignore[misc]
        if found is not None:
            return next(iter(found.node_of.values()))
    return None


@given(
    nodes,
    st.tuples(st.just(8), st.integers(0, 3), st.integers(0, 2), st.booleans()),
    st.sets(st.sampled_from([f"n{index}" for index in range(6)])),
    st.sets(st.sampled_from([f"n{index}" for index in range(6)])),
    st.lists(st.sets(st.sampled_from([f"n{index}" for index in range(6)]), max_size=2), min_size=1, max_size=8),
    st.booleans(),
)
def test_nodes_that_are_found_one_after_the_other_are_those_that_each_pod_alone_would_get(
    shapes: list[tuple[str, str, str, str]],
    demand: tuple[int, int, int, bool],
    near: set[str],
    nearest: set[str],
    excluded: list[set[str]],
    is_freed: bool,
) -> None:
    cluster = made(shapes)
    names = {node.metadata.name for node in cluster}
    view = a_view(*cluster)
    (pod_set,) = demanded([demand])
    requests = requests_by_kind([pod_set])
    finder = MemberNodes(view, pod_set, near, nearest)
    for index, exclude in enumerate(excluded):
        if is_freed and index == 4 and "k0-0" in view.reserved_members("ns/g"):
            node = view.reserved_members("ns/g")["k0-0"]
            view.unreserve_member("ns/g", "k0-0")
            finder.refresh(node)
        found = finder.find(exclude)
        assert found == best_node(view, pod_set, [nearest & names, near & names, names], exclude)
        if found is not None:
            near.add(found)
            view.reserve("ns/g", {f"k0-{index}": found}, requests, attempt=1)
