"""Fair order within one scheduling cycle: shares, weights, priorities and determinism."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.examples import examples
from helpers.gangs import NOW, a_gang, a_node, a_view, workers
from tfjob_controller.api.gang import Gang
from tfjob_controller.scheduling.decisions import AdmissionDecider, AdmissionPolicy, Admit, Decision, queue_order
from tfjob_controller.scheduling.fairshare import NamespaceShares, in_fair_order

POLICY = AdmissionPolicy(starvation_timeout_seconds=30.0)


def gang_in(namespace: str, name: str, count: int, age: int, priority: int = 0) -> Gang:
    gang = a_gang(name, workers(count), age_seconds=age, priority=priority)
    return replace(gang, metadata=replace(gang.metadata, namespace=namespace))


def decided(gangs: list[Gang], cpus: int, weights: dict[str, float]) -> list[Decision]:
    view = a_view(a_node("n", str(cpus), pods="1000"))
    shares = NamespaceShares(view, lambda namespace: weights.get(namespace, 1.0))
    return AdmissionDecider(view, POLICY, shares=shares).decide(gangs, NOW)


def admitted(decisions: list[Decision]) -> Counter[str]:
    return Counter(each.gang_key.partition("/")[0] for each in decisions if isinstance(each, Admit))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 100), st.integers(0, 100), st.sampled_from([1, 2, 3]))
def test_admitted_shares_follow_the_weights(cpus: int, size: int, age_a: int, age_b: int, weight: int) -> None:
    """Both namespaces want more than there is. A namespace is ahead of its weighted share by one gang at most."""
    gangs = [gang_in("a", f"a{index:02}", size, age_a) for index in range(cpus + 1)]
    gangs += [gang_in("b", f"b{index:02}", size, age_b) for index in range(cpus + 1)]
    counts = admitted(decided(gangs, cpus, {"a": float(weight)}))
    assert counts.total() == cpus // size
    assert (counts["a"] - 1) / weight <= counts["b"]
    assert counts["b"] - 1 <= counts["a"] / weight


queues = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=15
)


def gangs_of(queue: list[tuple[str, int, int, int]]) -> list[Gang]:
    return [gang_in(ns, f"g{at:02}", count, age, priority) for at, (ns, count, age, priority) in enumerate(queue)]


@settings(max_examples=examples(100), deadline=None)
@given(queues, st.integers(1, 12), st.randoms())
def test_each_gang_is_decided_once_by_priority_and_the_order_of_the_input_is_irrelevant(
    queue: list[tuple[str, int, int, int]], cpus: int, random: Random
) -> None:
    gangs = gangs_of(queue)
    decisions = decided(gangs, cpus, {})
    priorities = {f"{each.metadata.namespace}/{each.metadata.name}": each.spec.priority for each in gangs}
    order = [priorities[each.gang_key] for each in decisions]
    assert order == sorted(order, reverse=True)
    assert {each.gang_key for each in decisions} == set(priorities)
    assert len(decisions) == len(gangs)
    random.shuffle(gangs)
    assert decided(gangs, cpus, {}) == decisions


@settings(max_examples=examples(60), deadline=None)
@given(queues)
def test_within_one_namespace_the_order_is_that_of_age(queue: list[tuple[str, int, int, int]]) -> None:
    gangs = [each for each in gangs_of(queue) if each.metadata.namespace == "a"]
    shares = NamespaceShares(a_view(a_node("n")))
    assert list(in_fair_order(queue_order(gangs), shares)) == queue_order(gangs)
