"""Tables as HTML for notebooks. Everything that comes from a cluster is escaped: jobs are written by strangers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_LEFT = ' style="text-align: left"'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{_LEFT}>{escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td{_LEFT}>{escape(cell)}</td>" for cell in row)


def fields(pairs: Mapping[str, str]) -> str:
    """Names and values; those without a value are left out."""
    rows = (
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(value)}</td></tr>"
        for name, value in pairs.items()
        if value
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def heading(text: str) -> str:
    return f"<h4>{escape(text)}</h4>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
