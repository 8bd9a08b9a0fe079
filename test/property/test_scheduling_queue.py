"""Gangs that are created and deleted: no capacity is reserved twice, no gang that fits waits, and none starves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.gangs import NOW, a_gang, a_node, a_view, decide_once, workers
from tfjob_controller.api.gang import Gang
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import (
    HELD_BACK,
    AdmissionDecider,
    AdmissionPolicy,
    Admit,
    Decision,
    Pending,
    Unschedulable,
)
from tfjob_controller.scheduling.placement import place
from tfjob_controller.scheduling.podsets import pod_sets_of

POLICY = AdmissionPolicy(starvation_timeout_seconds=30.0)

clusters = st.lists(st.integers(1, 4), min_size=1, max_size=4)
arrivals = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=12
)


def arrived(index: int, shape: tuple[int, int, int, int], second: int) -> Gang:
    """Every other one has pods of a second kind, so that what fits alone need not fit together."""
    count, cpu, priority, _ = shape
    members = [workers(count, str(cpu)), workers(1, name="ps")][: 1 + index % 2]
    return a_gang(f"g{index:02}", *members, age_seconds=-float(second), priority=priority)


@settings(max_examples=examples(150), deadline=None)
@given(clusters, arrivals)
def test_no_pass_commits_too_much_and_memory_changes_no_answer(
    cpus: list[int], shapes: list[tuple[int, int, int, int]]
) -> None:
    """One gang comes each second and runs for some; each pass is compared with one that remembers nothing."""
    nodes = [a_node(f"n{index}", str(cpu)) for index, cpu in enumerate(cpus)]
    view = a_view(*nodes)
    decider = AdmissionDecider(view, POLICY)
    waiting: dict[str, Gang] = {}
    ends: dict[str, int] = {}
    for second in range(len(shapes) + 60):
        for key in [key for key, end in ends.items() if end <= second]:
            del ends[key]
            view.unreserve(key)
        if second < len(shapes):
            gang = arrived(second, shapes[second], second)
            waiting[f"ns/{gang.metadata.name}"] = gang
        now = NOW + timedelta(seconds=second)
        other = a_view(*nodes)
        for key in ends:
            cpu = shapes[int(key[-2:])][1]
            requests = {"worker": {"cpu": cpu * 1000, "pods": 1}, "ps": {"cpu": 1000, "pods": 1}}
            other.reserve(key, view.reserved_members(key), requests, attempt=1)
        decisions = decider.decide(list(waiting.values()), now)
        assert decisions == decide_once(other, list(waiting.values()), now, POLICY)
        for decision in decisions:
            if isinstance(decision, Admit):
                del waiting[decision.gang_key]
                ends[decision.gang_key] = second + shapes[int(decision.gang_key[-2:])][3]
        assert all(value >= 0 for room in view.node_infos.values() for value in room.free.values())
        check_nobody_waits_in_vain(view, waiting, decisions)
    assert not ends
    assert all(isinstance(each, Unschedulable) for each in decider.decide(list(waiting.values()), NOW)), (
        "all had a turn"
    )


def check_nobody_waits_in_vain(view: ClusterView, waiting: Mapping[str, Gang], decisions: Iterable[Decision]) -> None:
    """Whoever waits and is not held back does not fit on what is left."""
    for decision in decisions:
        if isinstance(decision, Pending) and decision.message != HELD_BACK:
            assert place(view, pod_sets_of(waiting[decision.gang_key].spec)) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 3))
def test_a_wide_gang_gets_its_turn_however_many_small_ones_come(size: int, lifetime: int, rate: int) -> None:
    """Each second small gangs come, as many as would fill the cluster for ever."""
    view = a_view(*(a_node(f"n{index}", "1") for index in range(size)))
    decider = AdmissionDecider(view, POLICY)
    wide = a_gang("wide", workers(size))
    waiting = {"ns/wide": wide}
    ends: dict[str, int] = {f"ns/first-{index}": index % lifetime for index in range(size)}
    for index, key in enumerate(ends):
        view.reserve(key, {"worker-0": f"n{index}"}, {"worker": {"cpu": 1000, "pods": 1}}, attempt=1)
    for second in range(100):
        for key in [key for key, end in ends.items() if end <= second]:
            del ends[key]
            view.unreserve(key)
        for index in range(rate * size):
            name = f"small-{second:03}-{index}"
            waiting[f"ns/{name}"] = a_gang(name, workers(1), age_seconds=-float(second) - 1)
        for decision in decider.decide(list(waiting.values()), NOW + timedelta(seconds=second)):
            if isinstance(decision, Admit):
                del waiting[decision.gang_key]
                ends[decision.gang_key] = second + lifetime
        if "ns/wide" not in waiting:
            assert second <= 30 + lifetime
            return
    raise AssertionError("it starved")
