"""The rules of hack/pythonruns.py, and that docs/install.md shows what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import pythonruns
from generate.pythonversions import BEGIN, END, render_runs
from helpers.docs import DOCS
from pythonruns import Run, read, run_of, with_run

DATE = "2026-11-24"


@pytest.mark.parametrize(
    ("line", "passed", "failed", "skipped"),
    [
        pytest.param("= 6,001 warnings, 5 passed in 3.21s =", 5, 0, 0, id="passed"),
        pytest.param("= 2 failed, 4012 passed, 7 skipped in 321.10s (0:05:21) =", 4012, 2, 7, id="failed"),
        pytest.param("1 failed, 3 passed, 2 errors in 3.2s", 3, 3, 0, id="a test without its fixtures has failed"),
    ],
)
def test_the_last_line_of_pytest_is_the_result(line: str, passed: int, failed: int, skipped: int) -> None:
    assert run_of("3.14.1", DATE, line) == Run("3.14.1", DATE, passed, failed, skipped)


@pytest.mark.parametrize("line", ["", "!!! KeyboardInterrupt !!!", "no tests ran in 0.1s"])
def test_a_run_without_an_end_is_not_recorded(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythonruns, "RECORDS", tmp_path / "runs.json")
    (tmp_path / "log").write_text(line)
    assert pythonruns.main(["3.14.1", str(tmp_path / "log")]) == 1
    assert not (tmp_path / "runs.json").exists()


def test_a_newer_run_replaces_the_last_one_of_its_minor_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythonruns, "RECORDS", tmp_path / "runs.json")
    for version, count in (("3.14.1", 1), ("3.9.2", 2), ("3.14.2", 3)):
        (tmp_path / "log").write_text(f"earlier\n{count} passed in 1s\n")
        assert pythonruns.main([version, str(tmp_path / "log")]) == 0
    assert [(run.version, run.passed) for run in read(tmp_path / "runs.json")] == [("3.9.2", 2), ("3.14.2", 3)]
    assert with_run([], Run("3.11.1", DATE, 1, 0, 0)) == [Run("3.11.1", DATE, 1, 0, 0)]


def test_the_table_has_a_row_for_each_run() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    rendered = render_runs(page, [Run("3.14.2", DATE, 4321, 1, 2)])
    assert rendered.startswith("before\n")
    assert rendered.endswith("\nafter\n")
    assert "old" not in rendered
    assert "| 3.13 | no run recorded |" in rendered
    assert f"| 3.14.2 | 4,321 | 1 | 2 | {DATE} |" in rendered
    with pytest.raises(ValueError, match=r"docs/install\.md lacks the comments"):
        render_runs("nothing", [])


def test_the_page_shows_what_is_recorded() -> None:
    page = (DOCS / "install.md").read_text("utf-8")
    assert render_runs(page, read()) == page
