"""The rules of hack/kubernetesruns.py, and that docs/limits.md shows what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kubernetesruns
from generate.kubernetesversions import BEGIN, END, render_versions
from helpers.docs import DOCS
from kubernetesruns import Run, read, run_of, with_run
from localcluster.kubernetesversions import known_minors, minor_of

TOTALS = {"passed": 5, "failed": 1, "error": 2, "skipped": 3, "not_applicable": 4}


def run(version: str, tests: str = "", passed: int = 1) -> Run:
    return Run(version, "2026-11-24", passed, 0, 0, 0, tests)


def test_a_test_without_its_fixtures_has_failed() -> None:
    found = run_of("v1.34.4", "2026-11-24", TOTALS, ["-k", "gang"])
    assert found == Run("v1.34.4", "2026-11-24", passed=5, failed=3, not_applicable=4, skipped=3, tests="-k gang")


def test_a_newer_run_replaces_the_last_one_of_its_minor_version() -> None:
    others = [run("v1.9.1"), run("v1.36.3")]
    assert with_run([*others, run("v1.34.1")], run("v1.34.4")) == [run("v1.9.1"), run("v1.34.4"), run("v1.36.3")]


def test_a_run_of_chosen_tests_does_not_replace_one_of_all_tests() -> None:
    assert with_run([run("v1.34.4")], run("v1.34.4", "-k gang")) == [run("v1.34.4")]
    assert with_run([run("v1.34.1")], run("v1.34.4", "-k gang")) == [run("v1.34.4", "-k gang")]
    assert with_run([run("v1.34.4", "-k gang")], run("v1.34.4")) == [run("v1.34.4")]


def test_the_last_counts_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.34")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "totals").write_text(json.dumps({**TOTALS, "passed": 99}) + "\n" + json.dumps(TOTALS) + "\n")
    kubernetesruns.record(tmp_path / "totals", [], tmp_path / "runs.json")
    (found,) = read(tmp_path / "runs.json")
    assert (minor_of(found.version), found.passed, found.tests) == ("1.34", 5, "")
    assert "next: make generate" in capsys.readouterr().err


def test_a_version_that_cannot_be_built_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.12")
    assert kubernetesruns.main(["check"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_table_has_a_row_for_each_run() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    rendered = render_versions(page, [run("v1.33.1", "-k gang"), Run("v1.36.3", "2026-11-24", 1234, 1, 2, 3)])
    assert rendered.startswith("before\n")
    assert rendered.endswith("\nafter\n")
    assert "old" not in rendered
    assert "| 1.34 | no run recorded |  |" in rendered
    assert "| 1.33.1 | `-k gang` | 1 | 0 | 0 | 2026-11-24 |" in rendered
    assert "| 1.36.3 | all, 3 skipped | 1,234 | 1 | 2 | 2026-11-24 |" in rendered
    assert (
        render_versions(rendered, [run("v1.33.1", "-k gang"), Run("v1.36.3", "2026-11-24", 1234, 1, 2, 3)]) == rendered
    )


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/limits\.md lacks the comments"):
        render_versions("nothing", [])


def test_the_page_shows_what_is_recorded_of_versions_that_can_be_built() -> None:
    page, runs = (DOCS / "limits.md").read_text("utf-8"), read()
    assert render_versions(page, runs) == page
    assert {minor_of(each.version) for each in runs} <= set(known_minors())
    for each in runs:
        assert f"| {each.version.removeprefix('v')} | " in page
