"""The alert rules, tested with promtool: each fires on faulty series, and stays silent on good ones."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.alertcases import CASES, Case
from helpers.monitoringfiles import RULES, RULES_FILE, rules_of
from helpers.prometheusserver import tools


@pytest.fixture(scope="session")
def promtool() -> Path:
    return tools().promtool


def checked(promtool: Path, *arguments: str | Path, stdin: str | None = None) -> str:
    """Its words, if it is content."""
    done = subprocess.run([promtool, *arguments], input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_alert_has_cases_and_every_case_an_alert() -> None:
    assert {rule["alert"] for rule in RULES} == CASES.keys()


def test_promtool_finds_nothing_wrong_with_the_rules(promtool: Path) -> None:
    words = checked(promtool, "check", "rules", RULES_FILE)
    assert f"{len(RULES)} rules found" in words


def test_each_alert_fires_on_what_is_bad_and_is_silent_on_what_is_not(promtool: Path, tmp_path: Path) -> None:
    # All in one run of promtool, each with its own rules alone: else all rules are evaluated for each of the cases.
    paths = [_written(tmp_path, name, rules_of(name)) for name in CASES]
    checked(promtool, "test", "rules", *paths)


def _written(folder: Path, name: str, rules: list[Any]) -> Path:
    """The test file of one alert."""
    path, rule_path = folder / f"{name}-test.yaml", folder / f"{name}.yaml"
    rule_path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    fires = [_test(name, case, [{"labels": "{}", "value": 1}]) for case in CASES[name].fires]
    silent = [_test(name, case, []) for case in CASES[name].silent]
    document = {"rule_files": [rule_path.name], "evaluation_interval": "1m", "tests": [*fires, *silent]}
    path.write_text(yaml.safe_dump(document))
    return path


def _test(name: str, case: Case, expected: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": f"{case.at}m", "exp_samples": expected}],
    }
