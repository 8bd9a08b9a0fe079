"""Columns of several kinds in one table."""

from __future__ import annotations

import msgspec

from tfjob_controller.client.reader import TablePage
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB
from tfjob_controller.kubectl.commands.jobtable import GrowingTable, JobList, TableLayout, merged_headers, rows_of


def page(columns: dict[str, int], *rows: dict[str, object]) -> TablePage:
    """Columns with their priority, and rows by column."""
    body = {
        "kind": "Table",
        "columnDefinitions": [{"name": name, "priority": priority} for name, priority in columns.items()],
        "rows": [
            {"cells": [row.get(name) for name in columns], "object": {"metadata": {"namespace": "team"}}}
            for row in rows
        ],
    }
    return msgspec.convert(body, TablePage)


JOBS = JobList(TFJOB, [page({"Name": 0, "State": 0, "Workers": 0, "Reason": 1, "Age": 0}, {"Name": "a", "Age": "1s"})])
TRAIN = JobList(TRAINJOB, [page({"Name": 0, "Nodes": 0, "Reason": 1, "Age": 0}, {"Name": "b", "Nodes": "2/2"})])


def test_shared_columns_stand_once_and_ages_last() -> None:
    assert merged_headers([JOBS, TRAIN], wide=False) == ["Name", "State", "Workers", "Nodes", "Age"]
    assert merged_headers([TRAIN, JOBS], wide=True) == ["Name", "Nodes", "State", "Workers", "Reason", "Age"]


def test_a_row_is_empty_where_its_kind_has_no_column_and_the_kind_is_named() -> None:
    headers, rows = rows_of([JOBS, TRAIN], TableLayout(True))
    assert headers[:3] == ["Namespace", "Kind", "Name"]
    assert rows == [["team", "TFJob", "a", "", "", "", "1s"], ["team", "TrainJob", "b", "", "", "2/2", ""]]


def test_of_one_kind_alone_its_columns_are_shown_as_they_are() -> None:
    headers, rows = rows_of([TRAIN], TableLayout(False))
    assert headers == ["Name", "Nodes", "Age"]
    assert rows == [["b", "2/2", ""]]


def test_rows_that_come_later_stand_below_the_same_headers() -> None:
    shown = GrowingTable([JOBS, TRAIN], TableLayout(False))
    assert shown.lines() == [
        "KIND      NAME  STATE  WORKERS  NODES  AGE",
        "TFJob     a     -      -        -      1s",
        "TrainJob  b     -      -        2/2    -",
    ]
    assert shown.lines() == []
    (later,) = page({"Name": 0, "Nodes": 0, "Reason": 1, "Age": 0}, {"Name": "longer", "Nodes": "0/2"}).rows or ()
    assert shown.line(1, later) == "TrainJob  longer  -      -        0/2    -"


def test_a_watched_table_without_rows_has_its_headers() -> None:
    empty = JobList(TFJOB, [page({"Name": 0, "Reason": 1, "Age": 0})])
    shown = GrowingTable([empty], TableLayout(True, wide=True))
    assert shown.lines() == ["NAMESPACE  NAME  REASON  AGE"]
