"""What was seen with programs of other projects is kept in files, from which the page is generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from generate.interop import BEGIN, END, render_interop, replaced
from interop.record import RESULTS, Record, read_all, rules_of, write
from localcluster.addons import ADDONS

SEEN = {"test_a_job_runs": {"TFJob": True, "TrainJob": False}, "test_it_stops": {"TFJob": True}}
RECORD = Record("kueue", "v1.2.3", "v1.36.3", "2026-01-02", rules_of(SEEN))
PAGE = f"before\n{BEGIN}old\n{END}after\n"


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = write(RECORD, tmp_path / "results")
    assert path.name == "kueue.json"
    assert read_all(path.parent) == [RECORD]


def test_the_table_has_a_row_for_each_rule_and_a_column_for_each_program() -> None:
    other = Record("volcano", "v4.5.6", "v1.35.0", "2026-01-03", {"it stops": {"TFJob": True, "TrainJob": True}})
    lines = replaced(PAGE, [RECORD, other]).splitlines()
    assert "| kueue | v1.2.3 | v1.36.3 | 2026-01-02 |" in lines
    assert "| volcano | v4.5.6 | v1.35.0 | 2026-01-03 |" in lines
    assert "| rule | kueue | volcano |" in lines
    assert "| a job runs | TFJob: yes, TrainJob: no | - |" in lines
    assert "| it stops | TFJob: yes, TrainJob: - | yes |" in lines
    # A rule of several programs comes first.
    assert lines.index("| it stops | TFJob: yes, TrainJob: - | yes |") < lines.index(
        "| a job runs | TFJob: yes, TrainJob: no | - |"
    )
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines


def test_a_page_is_rendered_again_without_a_change() -> None:
    once = replaced(PAGE, [RECORD])
    assert replaced(once, [RECORD]) == once


def test_a_page_without_the_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        replaced("a page", [RECORD])


def test_the_page_shows_the_records_of_this_repository() -> None:
    page = render_interop()
    for record in read_all(RESULTS):
        assert f"| {record.name} | {record.version} | {record.kubernetes} | {record.date} |" in page
        assert record.version == ADDONS[record.name].version, "run `make interop` again for the new version"
