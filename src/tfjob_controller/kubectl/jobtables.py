"""Tables of several kinds as one. Pure: the API server chooses and fills the columns, ages too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tfjob_controller.client.kinds import JobKind
from tfjob_controller.client.reader import TablePage, TableRow
from tfjob_controller.client.text import TextTable


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs of one kind, as pages of the server's."""

    kind: JobKind
    pages: Sequence[TablePage]

    @property
    def rows(self) -> list[TableRow]:
        return [row for page in self.pages for row in page.rows or ()]

    @property
    def version(self) -> int:
        """The resourceVersion of the list, from which it can be watched on."""
        return int(self.pages[0].metadata.resource_version or 0)

    def headers(self, *, wide: bool) -> list[str]:
        """Without what the server marks as less important, unless `wide`."""
        return [column.name for column in self.pages[0].column_definitions if wide or column.priority == 0]

    def cells(self, row: TableRow, headers: Sequence[str]) -> list[str]:
        """Those below `headers`; empty where this kind has no such column."""
        names = [column.name for column in self.pages[0].column_definitions]
        values = dict(zip(names, row.cells, strict=False))
        return ["" if values.get(name) is None else str(values[name]) for name in headers]


def merged_headers(tables: Sequence[JobList], *, wide: bool) -> list[str]:
    """The columns of all; what a later table alone has stands before the next column that both have."""
    merged: list[str] = []
    for table in tables:
        headers = table.headers(wide=wide)
        for index, name in enumerate(headers):
            if name not in merged:
                merged.insert(_place(merged, headers[index + 1 :]), name)
    return merged


def _place(merged: Sequence[str], following: Sequence[str]) -> int:
    return next((merged.index(each) for each in following if each in merged), len(merged))


def rows_of(tables: Sequence[JobList], *, with_namespace: bool, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; which kind a job is stands there where there are several."""
    headers = merged_headers(tables, wide=wide)
    with_kind = len(tables) > 1
    rows = [
        _cells_of(table, row, headers, with_namespace=with_namespace, with_kind=with_kind)
        for table in tables
        for row in table.rows
    ]
    return _with_first_columns(headers, with_namespace=with_namespace, with_kind=with_kind), rows


def _cells_of(
    table: JobList, row: TableRow, headers: Sequence[str], *, with_namespace: bool, with_kind: bool
) -> list[str]:
    return [
        *([row.object.metadata.namespace] if with_namespace else []),
        *([table.kind.resource.kind] if with_kind else []),
        *table.cells(row, headers),
    ]


def _with_first_columns(headers: Sequence[str], *, with_namespace: bool, with_kind: bool) -> list[str]:
    return [*(["Namespace"] if with_namespace else []), *(["Kind"] if with_kind else []), *headers]


class GrowingTable:
    """A table whose rows go on to come, below the same headers. It keeps the widths of its columns, and no rows."""

    def __init__(self, tables: Sequence[JobList], *, with_namespace: bool, wide: bool) -> None:
        self._table = TextTable(*rows_of(tables, with_namespace=with_namespace, wide=wide))
        self._lines = self._table.lines()
        self._tables = [JobList(each.kind, [msgspec.structs.replace(each.pages[0], rows=None)]) for each in tables]
        self._headers = merged_headers(tables, wide=wide)
        self._with_namespace = with_namespace

    def lines(self) -> list[str]:
        """The table as it was listed, once."""
        lines, self._lines = self._lines, []
        return lines

    def line(self, index: int, row: TableRow) -> str:
        """A further row, of the kind that stood at that place."""
        cells = _cells_of(
            self._tables[index],
            row,
            self._headers,
            with_namespace=self._with_namespace,
            with_kind=len(self._tables) > 1,
        )
        return self._table.line(cells)
