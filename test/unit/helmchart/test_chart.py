"""The chart has all that it is made of, and its values are described once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from helmchart.chart import CHART, all_values, files
from tfjob_controller.api.controllerconfig import parse_controller_config

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / CHART
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads((FOLDER / "values.schema.json").read_text("utf-8"))
TEMPLATES = {path.name: path.read_text("utf-8") for path in (FOLDER / "templates").iterdir()}


def paths(schema: dict[str, Any], path: str = "") -> set[str]:
    """The paths of all values that the schema describes."""
    if "description" in schema:
        return {path.removeprefix(".")}
    return set().union(*(paths(each, f"{path}.{name}") for name, each in schema["properties"].items()))


def test_all_but_the_templates_is_generated() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert {path for path in there if not path.startswith(f"{CHART}/templates/")} == set(files(ROOT, {}))


def test_templates_read_every_copied_file_and_no_other() -> None:
    patterns = re.findall(r'\.Files\.(?:Get|Glob) (?:\(printf )?"([^"]+)"', "\n".join(TEMPLATES.values()))
    read = {path for pattern in patterns for path in FOLDER.glob(pattern.replace("%s", "*"))}
    assert read == {ROOT / path for path in files(ROOT, {}) if path.startswith(f"{CHART}/files/")}


def test_every_value_has_a_default_and_a_schema() -> None:
    values = {value.path: value for value in all_values(ROOT)}
    assert paths({**SCHEMA, "properties": {k: v for k, v in SCHEMA["properties"].items() if k != "global"}}) == set(
        values
    )
    for path, value in values.items():
        place: Any = VALUES
        for name in path.split("."):
            place = place[name]
        assert place == value.default, path


def test_templates_use_every_value_and_no_other() -> None:
    used = set(re.findall(r"\.Values\.([\w.]+)", "\n".join(TEMPLATES.values())))
    values = [value.path for value in all_values(ROOT)]
    for path in values:  # or a part of it, such as `.Values.config`
        assert any(path == name or path.startswith(f"{name}.") for name in used), path
    for name in used:
        assert any(path == name or path.startswith(f"{name}.") for path in values), name


def test_the_controller_reads_the_values_of_its_config_file() -> None:
    assert parse_controller_config(yaml.safe_dump(VALUES["config"])).tf_image == VALUES["config"]["tfImage"]
    with_all = {**VALUES["config"], "accelerators": {"nvidia.com/gpu": {"envVars": [{"name": "A", "value": "b"}]}}}
    assert parse_controller_config(yaml.safe_dump(with_all)).accelerators


def test_no_template_names_the_namespace_of_the_overlays() -> None:
    for name, text in TEMPLATES.items():
        lines = re.findall(r".*tfjob-system.*", text)
        # An object with that name, a priority class, and those that replace it in a copied file.
        allowed = r'\b(name|priorityClassName): tfjob-system|replace "[^"]*tfjob-system[^"]*" .*\.Release\.Namespace'
        assert [line for line in lines if not re.search(allowed, line)] == [], name
