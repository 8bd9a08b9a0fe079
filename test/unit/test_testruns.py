"""The rules of hack/testruns.py, and that docs/limits.md and docs/install.md show what is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import testruns
from generate.testruns import BEGIN, END, render_kubernetes, render_pythons
from helpers.docs import DOCS
from localcluster.kubernetesversions import known_minors
from testruns import Run, read, run_of, with_run

TOTALS = {"passed": 5, "failed": 1, "error": 2, "skipped": 3, "not_applicable": 4}
DATE = "2026-11-24"


def run(version: str) -> Run:
    return Run(version, DATE, 1, 0, 0)


def test_a_test_without_its_fixtures_has_failed() -> None:
    found = run_of("v1.34.4", TOTALS)
    assert found == Run("v1.34.4", found.date, passed=5, failed=3, not_applicable=4, skipped=3)


def test_a_newer_run_replaces_the_last_one_of_its_minor_version() -> None:
    others = [run("v1.9.1"), run("v1.36.3")]
    assert with_run([*others, run("v1.34.1")], run("v1.34.4")) == [run("v1.9.1"), run("v1.34.4"), run("v1.36.3")]


@pytest.mark.parametrize("records", ["KUBERNETES", "PYTHON"])
def test_the_last_counts_are_recorded(
    records: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.34")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(testruns, records, tmp_path / "runs.json")
    totals = tmp_path / "totals"
    command = ["python", "3.14.2", str(totals)] if records == "PYTHON" else ["kubernetes", str(totals)]
    assert testruns.main(command) == 0
    assert not (tmp_path / "runs.json").exists()
    totals.write_text(json.dumps({**TOTALS, "passed": 99}) + "\n" + json.dumps(TOTALS) + "\n")
    assert testruns.main(command) == 0
    (found,) = read(tmp_path / "runs.json")
    assert (found.minor, found.passed) == ((3, 14) if records == "PYTHON" else (1, 34), 5)
    assert "next: make generate" in capsys.readouterr().err


def test_a_version_that_cannot_be_built_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES", "1.12")
    assert testruns.main(["check"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("render", "records", "runs", "rows"),
    [
        pytest.param(
            render_kubernetes,
            testruns.KUBERNETES,
            [Run("v1.36.3", DATE, 1234, 1, 3, 2)],
            ["| 1.34 | no run recorded |  |", f"| 1.36.3 | 1,234 | 1 | 3 | 2 | {DATE} |"],
            id="Kubernetes",
        ),
        pytest.param(
            render_pythons,
            testruns.PYTHON,
            [Run("3.14.2", DATE, 4321, 1, 2)],
            ["| 3.13 | no run recorded |", f"| 3.14.2 | 4,321 | 1 | 2 | {DATE} |"],
            id="Python",
        ),
    ],
)
def test_the_table_has_a_row_for_each_run(
    render: Callable[[str, Iterable[Run]], str], records: Path, runs: list[Run], rows: list[str]
) -> None:
    begin = BEGIN.format(records.name)
    rendered = render(f"before\n{begin}\nold\n{END}\nafter\n", runs)
    assert rendered.startswith("before\n")
    assert rendered.endswith("\nafter\n")
    assert "old" not in rendered
    assert [row for row in rows if row not in rendered] == []
    assert render(rendered, runs) == rendered
    with pytest.raises(ValueError, match="the page lacks the comment"):
        render("nothing", runs)


def test_the_pages_show_what_is_recorded_of_versions_that_can_be_built() -> None:
    runs = read(testruns.KUBERNETES)
    assert {".".join(map(str, each.minor)) for each in runs} <= set(known_minors())
    for page, render, found in (
        ("limits.md", render_kubernetes, runs),
        ("install.md", render_pythons, read(testruns.PYTHON)),
    ):
        text = (DOCS / page).read_text("utf-8")
        assert render(text, found) == text
        assert all(f"| {each.version.removeprefix('v')} | " in text for each in found)
