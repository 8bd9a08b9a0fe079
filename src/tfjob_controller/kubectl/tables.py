"""Tables of several kinds as one. Pure: the API server chooses and fills the columns, ages too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfjob_controller.client.kinds import Kind
from tfjob_controller.client.reads import Row, Table


@dataclass(frozen=True, slots=True)
class Listed:
    """The jobs of one kind, as pages of the server's."""

    kind: Kind
    pages: Sequence[Table]

    @property
    def rows(self) -> list[Row]:
        return [row for page in self.pages for row in page.rows or ()]

    def headers(self, *, wide: bool) -> list[str]:
        """Without what the server marks as less important, unless `wide`."""
        return [column.name for column in self.pages[0].column_definitions if wide or column.priority == 0]

    def cells(self, row: Row, headers: Sequence[str]) -> list[str]:
        """Those below `headers`; empty where this kind has no such column."""
        names = [column.name for column in self.pages[0].column_definitions]
        values = dict(zip(names, row.cells, strict=False))
        return ["" if values.get(name) is None else str(values[name]) for name in headers]


def merged_headers(tables: Sequence[Listed], *, wide: bool) -> list[str]:
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


def rows_of(tables: Sequence[Listed], *, with_namespace: bool, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; which kind a job is stands there where there are several."""
    headers = merged_headers(tables, wide=wide)
    with_kind = len(tables) > 1
    rows = [
        [
            *([row.object.metadata.namespace] if with_namespace else []),
            *([table.kind.resource.kind] if with_kind else []),
            *table.cells(row, headers),
        ]
        for table in tables
        for row in table.rows
    ]
    return [*(["Namespace"] if with_namespace else []), *(["Kind"] if with_kind else []), *headers], rows
