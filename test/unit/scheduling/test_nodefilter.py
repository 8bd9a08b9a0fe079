"""Which nodes suit: as kube-scheduler answers it."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.gangs import a_node
from tfjob_controller.api.common.cluster import Taint
from tfjob_controller.api.gang import Member
from tfjob_controller.scheduling.nodefilter import (
    NOT_READY,
    NOT_SELECTED,
    TAINTED,
    UNSCHEDULABLE,
    NodeVerdicts,
    node_filter_of,
)

LABELS = {"zone": "a", "cores": "16", "empty": ""}


def terms(*each: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelectorTerms": list(each)}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def by_name(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("affinity", "suits"),
    [
        pytest.param(None, True, id="none"),
        pytest.param({}, False, id="no terms match nothing"),
        pytest.param(terms({}), False, id="an empty term matches nothing"),
        pytest.param(terms(expression("zone", "In", "a", "b")), True, id="In"),
        pytest.param(terms(expression("zone", "NotIn", "a")), False, id="NotIn"),
        pytest.param(terms(expression("other", "NotIn", "a")), True, id="NotIn without the label"),
        pytest.param(terms(expression("empty", "Exists")), True, id="Exists with an empty value"),
        pytest.param(terms(expression("other", "DoesNotExist")), True, id="DoesNotExist"),
        pytest.param(terms(expression("cores", "Gt", "15")), True, id="Gt"),
        pytest.param(terms(expression("cores", "Gt", "16")), False, id="Gt of the same"),
        pytest.param(terms(expression("cores", "Lt", "17")), True, id="Lt"),
        pytest.param(terms(expression("zone", "Lt", "17")), False, id="Lt of what is no number"),
        pytest.param(terms(expression("cores", "Gt", str(2**63))), False, id="Gt beyond 64 bits"),
        pytest.param(terms(expression("other", "NotIn", "-5")), False, id="a value that no label can have"),
        pytest.param(terms(expression("x.io/a", "DoesNotExist")), True, id="a key with a prefix"),
        pytest.param(terms(expression("/a", "DoesNotExist")), False, id="a key with an empty prefix"),
        pytest.param(terms(expression("a" * 64, "DoesNotExist")), False, id="a key that is too long"),
        pytest.param(terms(expression("zone", "In")), False, id="In of nothing is invalid"),
        pytest.param(terms(expression("zone", "Exists", "a")), False, id="Exists with a value is invalid"),
        pytest.param(terms(expression("zone", "Like", "a")), False, id="an unknown operator"),
        pytest.param(
            terms(expression("zone", "Like", "a"), expression("zone", "In", "a")), True, id="another term still counts"
        ),
        pytest.param(terms(expression("zone", "In", "b"), expression("zone", "In", "a")), True, id="any term"),
        pytest.param(terms(expression("zone", "In", "a") | by_name("In", "m")), False, id="all of a term"),
        pytest.param(terms(by_name("In", "n")), True, id="by name"),
        pytest.param(terms(by_name("NotIn", "n")), False, id="by name NotIn"),
        pytest.param(terms(by_name("In", "n", "m")), False, id="two names are invalid"),
        pytest.param(terms(by_name("Exists")), False, id="fields know no other operator"),
        pytest.param({"nodeSelectorTerms": "x"}, False, id="nonsense matches nothing"),
    ],
)
def test_required_node_affinity(affinity: dict[str, Any] | None, suits: bool) -> None:
    member = Member("worker", node_affinity=affinity)
    assert node_filter_of(member).rejection(a_node("n", labels=LABELS)) == ("" if suits else NOT_SELECTED)


@pytest.mark.parametrize(
    ("selector", "suits"),
    [({}, True), ({"zone": "a", "empty": ""}, True), ({"zone": "b"}, False), ({"other": ""}, False)],
)
def test_node_selector(selector: dict[str, str], suits: bool) -> None:
    member = Member("worker", node_selector=selector)
    assert node_filter_of(member).rejection(a_node("n", labels=LABELS)) == ("" if suits else NOT_SELECTED)


@pytest.mark.parametrize(
    ("toleration", "suits"),
    [
        pytest.param({}, False, id="empty: Equal to no value"),
        pytest.param({"operator": "Exists"}, True, id="all"),
        pytest.param({"key": "k", "operator": "Exists"}, True, id="the key"),
        pytest.param({"key": "k", "value": "v"}, True, id="Equal by default"),
        pytest.param({"key": "k", "operator": "Equal", "value": "w"}, False, id="another value"),
        pytest.param({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True, id="the effect"),
        pytest.param({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "k", "operator": "Lt", "value": "9"}, False, id="numbers are behind a gate"),
    ],
)
def test_tolerations(toleration: dict[str, Any], suits: bool) -> None:
    node = a_node("n", taints=(Taint("k", "v", "NoSchedule"),))
    member = Member("worker", tolerations=(toleration,))
    assert node_filter_of(member).rejection(node) == ("" if suits else TAINTED)


@pytest.mark.parametrize(
    ("effect", "objection"), [("NoSchedule", TAINTED), ("NoExecute", TAINTED), ("PreferNoSchedule", "")]
)
def test_only_taints_that_forbid_count(effect: str, objection: str) -> None:
    node = a_node("n", taints=(Taint("k", "v", effect),))
    assert node_filter_of(Member("worker")).rejection(node) == objection


@pytest.mark.parametrize(("ready", "objection"), [("True", ""), ("", ""), ("False", NOT_READY), ("Unknown", NOT_READY)])
def test_a_not_ready_node_accepts_no_pod(ready: str, objection: str) -> None:
    member = Member("worker", tolerations=({"operator": "Exists"},))
    assert node_filter_of(member).rejection(a_node("n", ready=ready)) == objection


@pytest.mark.parametrize(
    ("tolerations", "objection"),
    [
        ((), UNSCHEDULABLE),
        (({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},), ""),
        (({"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"},), UNSCHEDULABLE),
    ],
)
def test_a_cordoned_node_accepts_pods_that_tolerate_it(tolerations: tuple[dict[str, Any], ...], objection: str) -> None:
    member = Member("worker", tolerations=tolerations)
    assert node_filter_of(member).rejection(a_node("n", unschedulable=True)) == objection


def test_a_not_ready_node_could_accept_pods_later() -> None:
    constraint = node_filter_of(Member("worker", node_selector={"zone": "a"}))
    sick = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    node = a_node("n", labels=LABELS, ready="False", unschedulable=True, taints=(sick,))
    assert constraint.could_accept(node)
    assert not constraint.could_accept(a_node("n", labels=LABELS, taints=(Taint("gpu", "", "NoSchedule"),)))
    assert not constraint.could_accept(a_node("n"))


def test_equal_constraints_are_one_object() -> None:
    one = Member("worker", node_selector={"a": "1", "b": "2"})
    other = Member("ps", node_selector={"b": "2", "a": "1"})
    assert node_filter_of(one) is node_filter_of(other)


def large_member(mark: str) -> Member:
    """Its filter is remembered; it accepts nodes with the label `zone: a`."""
    values = [f"{mark}-{number:030}" for number in range(40)]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [*values, "a"]}]}]
    return Member("worker", node_affinity={"nodeSelectorTerms": terms})


def test_a_verdict_is_that_of_the_filter_for_the_present_node() -> None:
    verdicts = NodeVerdicts()
    for member in (large_member("x"), Member("worker", node_selector={"zone": "a"})):
        node_filter = node_filter_of(member)
        for node in (
            a_node("n", labels={"zone": "a"}),
            a_node("n", labels={"zone": "b"}),
            a_node("n", labels={"zone": "a"}, taints=(Taint("gpu", "", "NoSchedule"),)),
            a_node("n", labels={"zone": "a"}, ready="False"),
            a_node("n", labels={"zone": "b"}, ready="False"),
            a_node("n", labels={"zone": "a"}, unschedulable=True),
        ):
            for _ in range(2):
                assert verdicts.rejection(node_filter, node) == node_filter.rejection(node)
                assert verdicts.could_accept(node_filter, node) == node_filter.could_accept(node)


def test_verdicts_are_bounded_in_bytes_and_small_filters_are_not_remembered() -> None:
    verdicts = NodeVerdicts(max_bytes=20_000)
    nodes = [a_node(f"n{number}", labels=LABELS) for number in range(20)]
    verdicts.evaluate(node_filter_of(Member("worker", node_selector={"zone": "a"})), nodes)
    assert verdicts.size_bytes == 0
    filters = [node_filter_of(large_member(str(number))) for number in range(20)]
    for each in filters:
        verdicts.evaluate(each, nodes)
        assert 0 < verdicts.size_bytes <= 20_000
    assert verdicts.filters == filters[-len(verdicts.filters) :]
    assert all(verdicts.rejection(each, nodes[0]) == each.rejection(nodes[0]) for each in filters)


def test_a_filter_above_the_memory_limit_is_evaluated_without_being_remembered() -> None:
    verdicts = NodeVerdicts(max_bytes=100)
    node_filter = node_filter_of(large_member("x"))
    assert verdicts.rejection(node_filter, a_node("n", labels={"zone": "b"})) == NOT_SELECTED
    assert verdicts.size_bytes == 0
