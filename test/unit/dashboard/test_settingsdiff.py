"""The settings of several jobs side by side: what is one setting, and which of them differ."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob_controller.dashboard.settingsdiff import MAX_ROWS, MAX_SETTINGS, Comparison, compare, settings_of

LONG = "x" * 300


def shown(comparison: Comparison) -> dict[str, dict[str, list[str]]]:
    return {
        title: {row.label: [cell.text for cell in row.cells] for row in rows}
        for title, rows in comparison.groups.items()
    }


def compared(*specs: Any, is_whole: bool = False) -> Comparison:
    return compare([settings_of(spec) for spec in specs], is_whole=is_whole)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        pytest.param({"numNodes": 2, "suspend": True}, {"numNodes": "2", "suspend": "true"}, id="values"),
        pytest.param({"trainer": {"args": ["-c", "a b"]}}, {"trainer.args": "-c 'a b'"}, id="a command"),
        pytest.param(
            {"trainer": {"env": [{"name": "LR", "value": "0.1"}, {"name": "KEY", "valueFrom": {"x": "y"}}]}},
            {"trainer.env.LR": "0.1", "trainer.env.KEY.valueFrom.x": "y"},
            id="environment",
        ),
        pytest.param(
            {"replicaSpecs": [{"tfReplicaType": "MASTER", "replicas": 1}, {"tfReplicaType": "WORKER", "replicas": 4}]},
            {"replicaSpecs.MASTER.replicas": "1", "replicaSpecs.WORKER.replicas": "4"},
            id="entries with a name of another field",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}, {"operator": "Equal"}]},
            {"tolerations.0.operator": "Exists", "tolerations.1.operator": "Equal"},
            id="entries without a name",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            {"env.0.name": "A", "env.0.value": "1", "env.1.name": "A", "env.1.value": "2"},
            id="names that are not unique",
        ),
        pytest.param({"RuntimeId": "ab12", "gang": {}}, {"gang": "{}"}, id="no identity"),
        pytest.param({"a": {"RuntimeId": "kept"}}, {"a.RuntimeId": "kept"}, id="not an identity"),
        pytest.param(None, {"": "null"}, id="nothing"),
    ],
)
def test_a_spec_has_these_settings(spec: Any, settings: dict[str, str]) -> None:
    assert {".".join(path): text for path, text in settings_of(spec).items()} == settings


def test_settings_that_differ_are_grouped_and_their_cells_marked() -> None:
    one = {"numNodes": 2, "framework": "torch", "trainer": {"image": "a:1", "env": [{"name": "LR", "value": "0.1"}]}}
    two = {"numNodes": 2, "framework": "torch", "trainer": {"image": "a:2", "env": [{"name": "LR", "value": "0.2"}]}}
    three = {"numNodes": 2, "framework": "torch", "trainer": {"image": "a:1"}}
    comparison = compared(one, two, three)
    assert shown(comparison) == {
        "Image": {"trainer / image": ["a:1", "a:2", "a:1"]},
        "Environment": {"trainer / env / LR": ["0.1", "0.2", ""]},
    }
    (row,) = comparison.groups["Environment"]
    assert [(cell.is_set, cell.differs) for cell in row.cells] == [(True, False), (True, True), (False, True)]
    assert (comparison.different, comparison.total) == (2, 4)


def test_equal_settings_are_shown_on_demand_after_the_ones_that_differ() -> None:
    one, two = {"a": "1", "b": "1", "numNodes": 2}, {"a": "1", "b": "2", "numNodes": 2}
    comparison = compared(one, two, is_whole=True)
    assert [*comparison.groups] == ["Nodes and replicas", "Other settings"]
    assert [row.label for row in comparison.groups["Other settings"]] == ["b", "a"]
    assert compared(one, one).groups == {}


def test_an_empty_value_is_not_the_same_as_none() -> None:
    (row,) = compared({"a": ""}, {"b": "x", "a": ""}).groups["Other settings"]
    assert [(cell.text, cell.is_set) for cell in row.cells] == [("", False), ("x", True)]
    assert compared({"a": ""}, {}).different == 1


def test_long_texts_are_cut_around_the_point_where_they_begin_to_differ() -> None:
    (row,) = compared({"command": f"{LONG}lr=1{LONG}"}, {"command": f"{LONG}lr=2{LONG}"}).groups["Command"]
    texts = [cell.text for cell in row.cells]
    assert all(len(text) <= 202 and text.startswith("…x") and text.endswith("x…") for text in texts)
    assert ["lr=1" in texts[0], "lr=2" in texts[1]] == [True, True]
    (row,) = compared({"command": LONG}, {"command": LONG}, is_whole=True).groups["Command"]
    assert row.cells[0].text == "x" * 200 + "…"
    (row,) = compared({"command": LONG}, {"command": f"{LONG}y"}).groups["Command"]
    assert row.cells[1].text.endswith("xy")


def test_the_number_of_settings_and_of_rows_is_bounded() -> None:
    many = {f"key-{index}": str(index) for index in range(MAX_SETTINGS + 5)}
    assert len(settings_of(many)) == MAX_SETTINGS
    comparison = compared(many, {})
    assert sum(map(len, comparison.groups.values())) == MAX_ROWS
    assert comparison.hidden == MAX_SETTINGS - MAX_ROWS


def test_labels_leave_out_what_all_pod_templates_have() -> None:
    spec = {"replicaSpecs": [{"tfReplicaType": "WORKER", "template": {"spec": {"containers": [
        {"name": "tensorflow", "image": "a"}]}}}]}  # fmt: skip
    (row,) = compared(spec, {}).groups["Image"]
    assert (row.label, row.path) == (
        "WORKER / tensorflow / image",
        "replicaSpecs.WORKER.template.spec.containers.tensorflow.image",
    )
