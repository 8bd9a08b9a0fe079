"""Paths, and the comparison of an object with expected values."""

from __future__ import annotations

from typing import Any

import pytest

from kubeflowcases.model import Case, Change, Contains, End, Fails, Has, NotStored, look_up, mismatches

END = End()
POD: dict[str, Any] = {
    "metadata": {"labels": {"a.b/c": "x"}},
    "spec": {
        "replicas": 0,
        "containers": [
            {"name": "other"},
            {"name": "node", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}], "command": ["run"]},
        ],
        "mounts": [{"name": "data", "mountPath": "/data"}],
        "tolerations": [{"effect": "NoSchedule"}],
    },
    "status": {"conditions": [{"type": "Failed", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.replicas", 0),
        ("metadata.labels[a.b/c]", "x"),
        ("spec.containers[node].env[A].value", "1"),
        ("spec.containers[1].command[0]", "run"),
        ("spec.mounts[/data].name", "data"),
        ("spec.tolerations[0].effect", "NoSchedule"),
        ("status.conditions[Failed].status", "True"),
        ("spec.containers[node].env#name", ["A", "B"]),
        ("spec.containers[absent].env[A].value", None),
        ("spec.containers[7]", None),
        ("spec.absent.further", None),
        ("spec.containers[node].command[0].further", None),
    ],
)
def test_a_path_names_one_value_or_none(path: str, value: object) -> None:
    assert look_up(POD, path) == value


def test_each_value_that_is_not_as_expected_is_named() -> None:
    assert mismatches(POD, {"spec.replicas": 1, "metadata.labels[a.b/c]": "x"}) == ["spec.replicas is 0, not 1"]


def test_zero_and_false_are_values_and_not_absent() -> None:
    assert mismatches(POD, {"spec.replicas": None}) == ["spec.replicas is 0, not None"]
    assert mismatches({"a": [], "b": {}}, {"a": None, "b": None, "c": None}) == []


def test_a_part_of_a_text_may_be_expected() -> None:
    assert mismatches({"a": "some words"}, {"a": Contains("words")}) == []
    assert mismatches({"a": "some"}, {"a": Contains("words")}) != []


@pytest.mark.parametrize(("promise", "differs", "steps"), [("A.", "", ()), ("A", "", (END,)), ("A.", "B", (END,))])
def test_a_case_has_steps_and_its_texts_are_sentences(promise: str, differs: str, steps: tuple[End, ...]) -> None:
    with pytest.raises(ValueError, match="its texts are sentences"):
        Case("name", "place", promise, {}, {}, steps, differs)


def test_a_case_passes_unless_it_says_how_it_differs() -> None:
    case = Case("name", "place", "A promise.", {}, {}, (Has("Job", "node", {}),))
    late = Case("name", "place", "A promise.", {}, {}, (Fails("words"),), differs="Something else happens.")
    assert (case.passes, case.is_refused_late) == (True, False)
    assert (late.passes, late.is_refused_late) == (False, True)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (NotStored("TrainJob", "words"), True),
        (Change({"suspend": True}, refused="words"), True),
        (Change({"suspend": True}), False),
        (Has("TrainJob", "", {"spec.suspend": False}), True),
        (Has("TrainJob", "", {"status.conditions": None}), False),
        (Has("Job", "node", {"spec.suspend": False}), False),
    ],
)
def test_promises_that_the_crds_keep_alone_are_told_from_those_of_the_controller(step: Any, expected: bool) -> None:
    assert Case("name", "place", "A promise.", {}, {}, (step,)).is_of_crds is expected
