"""Tables that show themselves as text in a terminal and as HTML in a notebook.

Everything in HTML is escaped, since jobs are written by strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Generic, TypeAlias, TypeVar, overload

from tfjob_controller.client.text import TextTable

T = TypeVar("T")
Columns: TypeAlias = Mapping[str, Callable[[T], str]]

_LEFT = ' style="text-align: left"'


class Table(Sequence[T], Generic[T]):
    """The items of a list as they were when they were read. Immutable, so any thread may read it."""

    __slots__ = ("_columns", "_items")

    def __init__(self, items: Iterable[T], columns: Columns[T]) -> None:
        self._items = tuple(items)
        self._columns = columns

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Table[T]: ...
    def __getitem__(self, index: int | slice) -> T | Table[T]:
        return Table(self._items[index], self._columns) if isinstance(index, slice) else self._items[index]

    def __repr__(self) -> str:
        if not self._items:
            return "(none)"
        return "\n".join(TextTable(self._headers(), self._rows()).lines())

    def _repr_html_(self) -> str:
        return html_table(self._headers(), self._rows()) if self._items else html_paragraph("(none)")

    def _headers(self) -> list[str]:
        return list(self._columns)

    def _rows(self) -> list[list[str]]:
        return [[cell(item) for cell in self._columns.values()] for item in self._items]


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{_LEFT}>{escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td{_LEFT}>{escape(cell)}</td>" for cell in row)


def html_fields(pairs: Mapping[str, str]) -> str:
    """Names and values; those without a value are left out."""
    rows = (
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(value)}</td></tr>"
        for name, value in pairs.items()
        if value
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def html_heading(text: str) -> str:
    return f"<h4>{escape(text)}</h4>"


def html_paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
