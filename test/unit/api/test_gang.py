"""Which members a gang should have, whatever it has a place for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from helpers.gangs import a_gang, member_ids, workers
from tfjob_controller.api.gang import GANGS, Gang, GangStatus, NodePlacement, member_of, wanted_members
from tfjob_controller.kube.meta import ObjectMeta


def placed(*members: str, count: int, leaving: tuple[str, ...] = ()) -> Gang:
    status = GangStatus(placement=(NodePlacement("n1", members),), leaving=leaving)
    return a_gang("a", workers(count), status=status)


def wanted(gang: Gang) -> str:
    return " ".join(member.removeprefix("worker-") for member in wanted_members(gang))


def test_a_gang_without_a_placement_has_its_first_members() -> None:
    gang = a_gang("a", workers(1, name="ps"), workers(3))
    assert wanted_members(gang) == ("ps-0", "worker-0", "worker-1", "worker-2") == member_ids(gang.spec)


@pytest.mark.parametrize(
    ("has", "count", "leaving", "expected"),
    [
        pytest.param("0 1 2", 3, "", "0 1 2", id="what it has"),
        pytest.param("0 1 2 3", 2, "", "0 1", id="the highest go first"),
        pytest.param("0 1 2 3", 3, "1", "0 2 3", id="unless others are leaving"),
        pytest.param("0 1 2 3", 4, "1 2", "0 1 2 3", id="who is leaving stays as long as the count is not lower"),
        pytest.param("0 1 2 3", 3, "1 2", "0 1 3", id="of more that are leaving than go the lowest stay"),
        pytest.param("0 1 2 3", 1, "1 2", "0", id="more go than are leaving"),
        pytest.param("0 3", 2, "", "0 3", id="holes stay"),
        pytest.param("0 3", 3, "", "0 1 3", id="and are filled first"),
        pytest.param("0 3", 6, "", "0 1 2 3 4 5", id="then comes what is above"),
        pytest.param("0 1", 0, "", "", id="none"),
        pytest.param("2 1 0", 2, "", "0 1", id="in whatever order the placement has them"),
        pytest.param("0 0 1", 2, "", "0 1", id="a member that stands there twice is one"),
        pytest.param("00 x -1 1 \u0661", 2, "", "0 1", id="what is no name of a member counts for nothing"),
        pytest.param("9" * 5000 + " 4", 1, "", "4", id="nor does a number that none has"),
    ],
)
def test_members_of_a_placed_gang(has: str, count: int, leaving: str, expected: str) -> None:
    def names(text: str) -> tuple[str, ...]:
        return tuple(f"worker-{index}" for index in text.split())

    assert wanted(placed(*names(has), count=count, leaving=names(leaving))) == expected


def test_kinds_whose_names_begin_alike_are_not_mistaken_for_each_other() -> None:
    status = GangStatus(placement=(NodePlacement("n1", ("a-1-0", "a-5")),))
    gang = a_gang("g", workers(1, name="a"), workers(2, name="a-1"), status=status)
    assert wanted_members(gang) == ("a-5", "a-1-0", "a-1-1")


def test_a_kind_that_the_spec_does_not_have_is_left_out() -> None:
    assert wanted_members(placed("worker-0", "ps-0", count=1)) == ("worker-0",)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_an_indexed_kind_has_its_lowest_indexes_whatever_is_placed_or_leaving(count: int) -> None:
    status = GangStatus(placement=(NodePlacement("n1", ("worker-0", "worker-3")),), leaving=("worker-0",))
    gang = a_gang("a", workers(count, indexed=True), status=status)
    assert wanted_members(gang) == tuple(f"worker-{index}" for index in range(count))


def test_members_of_all_nodes_count() -> None:
    nodes: Mapping[str, tuple[str, ...]] = {"n1": ("worker-4",), "n2": ("worker-0", "worker-2")}
    status = GangStatus(placement=tuple(NodePlacement(name, members) for name, members in nodes.items()))
    assert wanted(a_gang("a", workers(3), status=status)) == "0 2 4"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        pytest.param({"nodeAffinity": {"nodeSelectorTerms": [{}] * 65}}, "at most 64 terms", id="terms"),
        pytest.param(
            {"nodeAffinity": {"nodeSelectorTerms": [{"matchFields": [{}] * 65}]}}, "64 expressions", id="expressions"
        ),
        pytest.param(
            {"nodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [{"values": ["v"] * 257}]}]}},
            "256 values",
            id="values",
        ),
        pytest.param({"tolerations": [{}] * 65}, "at most 64 tolerations", id="tolerations"),
        pytest.param({"tolerations": [{"key": "k" * 300_000}]}, "spec: must have at most", id="bytes"),
    ],
)
def test_what_an_old_crd_takes_and_would_take_long_to_evaluate_is_not_decoded(member: Any, words: str) -> None:
    body = {"metadata": {"name": "g"}, "spec": {"members": [{"name": "worker", **member}]}}
    with pytest.raises(msgspec.DecodeError, match=words):
        GANGS.decode(msgspec.json.encode(body))


MEMBER = "scheduling.kubeflow.org/member"
KIND = "scheduling.kubeflow.org/member-kind"
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("labels", "member"),
    [
        pytest.param({}, "", id="no labels"),
        pytest.param({MEMBER: "worker-3"}, "worker-3", id="the name"),
        pytest.param({KIND: "node", INDEX: "17"}, "node-17", id="the kind and the completion index"),
        pytest.param({MEMBER: "worker-3", KIND: "node", INDEX: "17"}, "worker-3", id="the name comes first"),
        pytest.param({MEMBER: "", KIND: "node", INDEX: "17"}, "", id="an empty name is a name as well"),
        pytest.param({KIND: "node"}, "", id="no index"),
        pytest.param({KIND: "node", INDEX: "017"}, "", id="a leading zero"),
        pytest.param({KIND: "node", INDEX: "-1"}, "", id="a negative index"),
        pytest.param({KIND: "node", INDEX: "1\n"}, "", id="a line feed"),
        pytest.param({KIND: "node", INDEX: "\u0661"}, "", id="a digit of another script"),
        pytest.param({KIND: "node", INDEX: "9" * 10}, "", id="an index that no status has"),
        pytest.param({KIND: "Node", INDEX: "1"}, "", id="a kind that the CRD does not allow"),
        pytest.param({KIND: "node-", INDEX: "1"}, "", id="a kind that ends with a dash"),
        pytest.param({KIND: "node\n", INDEX: "1"}, "", id="a kind with a line feed"),
        pytest.param({KIND: "n" * 41, INDEX: "1"}, "", id="a kind that is too long"),
    ],
)
def test_labels_name_a_member_or_none(labels: dict[str, str], member: str) -> None:
    assert member_of(ObjectMeta(name="pod", namespace="ns", labels=labels)) == member
