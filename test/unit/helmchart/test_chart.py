"""The chart has all that the manifests have, and its values are described once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from helmchart.chart import CHART, COMPONENTS, all_defaults, files
from helmchart.kustomize import KustomizeError, Sources, add_component, build
from helmchart.tree import Condition
from helmchart.values import values
from tfjob_controller.api.controllerconfig import parse_controller_config

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / CHART
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads((FOLDER / "values.schema.json").read_text("utf-8"))
TEMPLATES = {path.name: path.read_text("utf-8") for path in (FOLDER / "templates").rglob("*") if path.is_file()}
BY_HAND = {"_helpers.tpl", "checks.yaml", "NOTES.txt"}


def paths(schema: dict[str, Any], path: str = "") -> set[str]:
    """The paths of all values that the schema describes."""
    if "description" in schema:
        return {path.removeprefix(".")}
    return set().union(*(paths(each, f"{path}.{name}") for name, each in schema["properties"].items()))


def test_every_component_of_kustomize_is_a_value() -> None:
    assert set(COMPONENTS) == {
        path.parent.name for path in (ROOT / "manifests/components").glob("*/kustomization.yaml")
    }


def test_nothing_is_left_in_the_chart_that_is_not_generated() -> None:
    generated = {path.removeprefix(f"{CHART}/") for path in files(ROOT, {})}
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert there - generated == {f"templates/{name}" for name in BY_HAND}


def test_every_value_has_a_default_and_a_schema() -> None:
    found = {each.path: each for each in values(all_defaults(ROOT))}
    assert paths({**SCHEMA, "properties": {k: v for k, v in SCHEMA["properties"].items() if k != "global"}}) == set(
        found
    )
    for path, each in found.items():
        place: Any = VALUES
        for name in path.split("."):
            place = place[name]
        assert place == each.default, path


def test_templates_use_every_value_and_no_other() -> None:
    text = "\n".join(TEMPLATES.values())
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    found = [each.path for each in values(all_defaults(ROOT))]
    for path in found:  # or a part of it, such as `.Values.config`
        assert any(path == each or path.startswith(f"{each}.") for each in used), path
    for each in used:
        assert any(path == each or path.startswith(f"{each}.") for path in found), each


def test_the_controller_reads_the_values_of_its_config_file() -> None:
    assert parse_controller_config(yaml.safe_dump(VALUES["config"])).tf_image == VALUES["config"]["tfImage"]
    with_all = {**VALUES["config"], "accelerators": {"nvidia.com/gpu": {"envVars": [{"name": "A", "value": "b"}]}}}
    assert parse_controller_config(yaml.safe_dump(with_all)).accelerators


def test_no_template_names_the_namespace_of_the_overlays() -> None:
    for name, text in TEMPLATES.items():
        found = re.findall(r".*tfjob-system.*", text)
        # An object with that name, and a priority class.
        assert [each for each in found if not re.search(r"\b(name|priorityClassName): tfjob-system", each)] == [], name


@pytest.mark.parametrize(
    ("kustomization", "words"),
    [
        pytest.param({"resources": ["a.yaml"], "namePrefix": "x-"}, "namePrefix is not supported", id="a field"),
        pytest.param(
            {"resources": ["a.yaml"], "labels": [{"pairs": {"a": "b"}}]},
            "labels in selectors",
            id="labels in selectors",
        ),
        pytest.param(
            {
                "resources": ["a.yaml"],
                "patches": [{"target": {"kind": "Secret"}, "patch": "{kind: Secret, data: {a: b}}"}],
            },
            "neither a JSON patch nor a deletion",
            id="a strategic merge",
        ),
        pytest.param(
            {"resources": ["a.yaml"], "patches": [{"target": {"group": "apps"}, "patch": "[]"}]},
            "targets by group",
            id="a target",
        ),
    ],
)
def test_what_the_chart_cannot_express_is_an_error(tmp_path: Path, kustomization: dict[str, Any], words: str) -> None:
    """So that `make generate` reports a change of the manifests that the chart would miss."""
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    (tmp_path / "a.yaml").write_text("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
    with pytest.raises(KustomizeError, match=words):
        build(Sources(tmp_path.parent, {}), tmp_path.name)


def test_a_component_removes_an_object_while_its_condition_holds() -> None:
    on = Condition(".Values.on")
    patches = [
        {"target": {"kind": "A"}, "patch": "{kind: A, $patch: delete}"},
        {"target": {"kind": "B"}, "patch": "[{op: add, path: /x, value: 1}]"},
    ]
    sources = Sources(
        Path("/nowhere"),
        {
            "base/kustomization.yaml": "resources: [objects.yaml]",
            "base/objects.yaml": "{kind: A, metadata: {name: a}}\n---\n{kind: B, metadata: {name: b}}",
            "part/kustomization.yaml": yaml.safe_dump({"resources": ["more.yaml"], "patches": patches}),
            "part/more.yaml": "{kind: C, metadata: {name: c}}",
        },
    )
    found = add_component(build(sources, "base"), sources, "part", on)
    assert [(each.kind, each.conditions) for each in found] == [("A", (on.negated(),)), ("B", ()), ("C", (on,))]
    assert "x" in found[1].tree
