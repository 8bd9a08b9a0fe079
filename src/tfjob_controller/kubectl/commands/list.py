"""`kubectl tfjob list`: the jobs of several kinds in one table, whose columns the API server chooses and fills."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tfjob_controller.client.kinds import kinds_named
from tfjob_controller.client.reader import Reader, TablePage, TableRow
from tfjob_controller.client.text import TextTable
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl.command import NAME, TABLE, WIDE
from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.terminal import print_line

_FoundT = TypeVar("_FoundT")


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


def rows_of(tables: Sequence[JobList], *, with_namespace: bool, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; several kinds have a column that names the kind."""
    columns, with_kind = merged_headers(tables, wide=wide), len(tables) > 1
    headers = [*(["Namespace"] if with_namespace else []), *(["Kind"] if with_kind else []), *columns]
    rows = [
        [
            *([row.object.metadata.namespace] if with_namespace else []),
            *([table.kind.resource.kind] if with_kind else []),
            *table.cells(row, columns),
        ]
        for table in tables
        for row in table.rows
    ]
    return headers, rows


class GrowingTable:
    """A table to which rows are added below the same headers. It keeps the widths of its columns, and no rows."""

    def __init__(self, tables: Sequence[JobList], *, with_namespace: bool, wide: bool) -> None:
        self._table = TextTable(*rows_of(tables, with_namespace=with_namespace, wide=wide))
        self._lines = self._table.lines()
        self._tables = [_with_rows(table, []) for table in tables]
        self._with_namespace = with_namespace
        self._wide = wide

    def lines(self) -> list[str]:
        """The table as it was listed, once."""
        lines, self._lines = self._lines, []
        return lines

    def line(self, index: int, row: TableRow) -> str:
        """A further row, of the kind at that index."""
        tables = [_with_rows(each, [row] if place == index else []) for place, each in enumerate(self._tables)]
        _, (cells,) = rows_of(tables, with_namespace=self._with_namespace, wide=self._wide)
        return self._table.line(cells)


def _with_rows(table: JobList, rows: list[TableRow]) -> JobList:
    return JobList(table.kind, [msgspec.structs.replace(table.pages[0], rows=rows)])


def list_jobs(session: Session, parsed: Namespace) -> int:
    if parsed.watch and parsed.output not in (TABLE, WIDE):
        raise UsageError(f"--watch prints a table: leave out -o {parsed.output}")
    if is_for_programs(parsed.output):
        found = _of_each(session, parsed, lambda reader: reader.manifests())
        items = [item for each in found for item in each]
        return print_value({"apiVersion": "v1", "kind": "List", "items": items}, parsed.output)
    listed = _of_each(session, parsed, lambda reader: JobList(reader.kind, list(reader.tables())))
    if parsed.watch:
        return _watch(listed, session, parsed)
    listed = [each for each in listed if each.rows]
    return _print_names(listed) if parsed.output == NAME else _print_tables(listed, session, parsed)


def _of_each(session: Session, parsed: Namespace, read: Callable[[Reader], _FoundT]) -> list[_FoundT]:
    """Returns the result of `read` for each kind.

    Kinds that are not installed are left out, unless none is installed.
    """
    found: list[_FoundT] = []
    missing: list[ApiError] = []
    for kind in kinds_named(parsed.kind or None):
        try:
            found.append(read(_reader(session, kind, parsed)))
        except ApiError as error:
            if not error.is_not_found:
                raise
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def _reader(session: Session, kind: ClientKind, parsed: Namespace) -> Reader:
    return Reader(session.requester, session.scope, kind, parsed.selector)


def _watch(listed: Sequence[JobList], session: Session, parsed: Namespace) -> int:
    """Prints changes until Ctrl-C, of the kinds that the cluster had at the start, also of those without a job."""
    from tfjob_controller.client.listwatch import merge_rows, watch_rows
    from tfjob_controller.util.clock import RealClock

    shown = GrowingTable(listed, with_namespace=not session.scope, wide=parsed.output == WIDE)
    for line in shown.lines():
        print_line(line, flush=True)
    clock = RealClock()
    watches = [
        watch_rows(session.requester, _reader(session, each.kind, parsed), each.version, print_notice, clock)
        for each in listed
    ]
    for index, row in merge_rows(watches):
        print_line(shown.line(index, row), flush=True)
    return 0


def _print_names(listed: Sequence[JobList]) -> int:
    """Prints what `kubectl get -o name` does."""
    for each in listed:
        for row in each.rows:
            print_line(f"{each.kind.word}.{each.kind.resource.group}/{row.object.metadata.name}")
    return 0


def _print_tables(listed: Sequence[JobList], session: Session, parsed: Namespace) -> int:
    if not listed:
        what = {"tfjob": "TFJobs", "trainjob": "TrainJobs"}.get(parsed.kind, "jobs")
        labelled = " with these labels" if parsed.selector else ""
        print_notice(f"No {what}{labelled} in {session.scope_text}.")
        return 0
    Screen().table(*rows_of(listed, with_namespace=not session.scope, wide=parsed.output == WIDE))
    return 0
