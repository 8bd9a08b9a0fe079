"""The jobs of several kinds in one table, whose columns the API server chooses and fills: rows, order, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.client.reader import TablePage, TableRow
from tfjob_controller.client.text import TextTable
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube import nesting
from tfjob_controller.kubectl.fieldpath import FieldPath, sort_key
from tfjob_controller.util.commandline import UsageError

# The column that is sorted by the time of creation: the server sends it as text.
_AGE = "age"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table shows beside the server's columns. `order` is a path, or the name of a column in any case."""

    with_namespace: bool
    wide: bool = False
    with_labels: bool = False
    order: FieldPath | str = ""


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs of one kind, in pages as the server sends them."""

    kind: ClientKind
    pages: Sequence[TablePage]

    @property
    def rows(self) -> list[TableRow]:
        return [row for page in self.pages for row in page.rows or ()]

    @property
    def version(self) -> int:
        """The resourceVersion of the list, from which it can be watched on."""
        return int(self.pages[0].metadata.resource_version or 0)

    def headers(self, *, wide: bool) -> list[str]:
        """The columns, without those that the server marks as less important unless `wide`."""
        return [column.name for column in self.pages[0].column_definitions if wide or column.priority == 0]

    def value(self, row: TableRow, column: str) -> Any:
        """What the row has in a column, named in lower case; None where this kind has no such column."""
        names = [definition.name.lower() for definition in self.pages[0].column_definitions]
        return dict(zip(names, row.cells, strict=False)).get(column)

    def cells(self, row: TableRow, headers: Sequence[str]) -> list[str]:
        """The cells below `headers`; empty where this kind has no such column."""
        names = [column.name for column in self.pages[0].column_definitions]
        values = dict(zip(names, row.cells, strict=False))
        return ["" if values.get(name) is None else str(values[name]) for name in headers]


def merged_headers(tables: Sequence[JobList], *, wide: bool) -> list[str]:
    """The columns of all tables; a column that only a later table has precedes the next column that both have."""
    merged: list[str] = []
    for table in tables:
        headers = table.headers(wide=wide)
        for index, name in enumerate(headers):
            if name not in merged:
                merged.insert(_place(merged, headers[index + 1 :]), name)
    return merged


def _place(merged: Sequence[str], following: Sequence[str]) -> int:
    return next((merged.index(each) for each in following if each in merged), len(merged))


def rows_of(tables: Sequence[JobList], layout: TableLayout) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; several kinds have a column that names the kind."""
    columns, with_kind = merged_headers(tables, wide=layout.wide), len(tables) > 1
    headers = [
        *(["Namespace"] if layout.with_namespace else []),
        *(["Kind"] if with_kind else []),
        *columns,
        *(["Labels"] if layout.with_labels else []),
    ]
    rows = [
        [
            *([row.object.metadata.namespace] if layout.with_namespace else []),
            *([table.kind.resource.kind] if with_kind else []),
            *table.cells(row, columns),
            *([labels_text(row.object.metadata.labels)] if layout.with_labels else []),
        ]
        for table, row in sorted_rows(tables, layout.order)
    ]
    return headers, rows


def labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def sorted_rows(tables: Sequence[JobList], order: FieldPath | str) -> list[tuple[JobList, TableRow]]:
    """The rows of all tables in this order, and otherwise by kind. Raises `UsageError` for what no job has."""
    pairs = [(table, row) for table in tables for row in table.rows]
    if not order or not pairs:
        return pairs
    if isinstance(order, FieldPath):
        return [pair for _, pair in order.sorted((_object_of(pair[1]), pair) for pair in pairs)]
    column = order.lower()
    if column == _AGE:
        pairs.sort(key=lambda pair: pair[1].object.metadata.creation_timestamp or "", reverse=True)
        return pairs
    known = merged_headers(tables, wide=True)
    if column not in map(str.lower, known):
        names = ", ".join(name.lower() for name in known)
        raise UsageError(f"--sort-by: there is no column {order!r}: name one of {names}, or a field as .metadata.name")
    pairs.sort(key=lambda pair: sort_key(pair[0].value(pair[1], column)))
    return pairs


def _object_of(row: TableRow) -> Mapping[str, Any]:
    parts = {"spec": row.object.spec, "status": row.object.status}
    values = {name: msgspec.json.decode(nesting.truncate(bytes(part))) for name, part in parts.items()}
    return {"metadata": msgspec.to_builtins(row.object.metadata), **values}


class GrowingTable:
    """A table to which rows are added below the same headers. It keeps the widths of its columns, and no rows."""

    def __init__(self, tables: Sequence[JobList], layout: TableLayout) -> None:
        self._table = TextTable(*rows_of(tables, layout))
        self._lines = self._table.lines()
        self._tables = [_with_rows(table, []) for table in tables]
        self._layout = layout

    def lines(self) -> list[str]:
        """The table as it was listed, once; the first line is its headers."""
        lines, self._lines = self._lines, []
        return lines

    def line(self, index: int, row: TableRow) -> str:
        """A further row, of the kind at that index."""
        tables = [_with_rows(table, [row] if place == index else []) for place, table in enumerate(self._tables)]
        _, (cells,) = rows_of(tables, self._layout)
        return self._table.line(cells)


def _with_rows(table: JobList, rows: list[TableRow]) -> JobList:
    return JobList(table.kind, [msgspec.structs.replace(table.pages[0], rows=rows)])
