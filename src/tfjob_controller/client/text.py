"""Text for people: single lines, ages, replica ranges, and tables for terminals and notebooks.

Everything that comes from a cluster passes `one_line`, since training programs must not control the reader's terminal,
and is escaped in HTML. Only the standard library is imported, because the plugin reports errors of its command line
with these functions.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar, overload

from tfjob_controller.util.text import escape
from tfjob_controller.util.timestamps import parse_time_or_none

# Each unit is used for ages below this many seconds.
_UNITS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))
_COLUMN_GAP = 2
# The last column is folded where at least this much width remains for it; otherwise the terminal folds the line.
_MIN_FOLDED_WIDTH = 30

# Decorates the text of a cell: gets the index of its line (the header is line 0, if there is one), of its column, and
# the text.
Style: TypeAlias = Callable[[int, int, str], str]

T = TypeVar("T")
Columns: TypeAlias = Mapping[str, Callable[[T], str]]

# What kubectl shows for a time that is none.
INVALID = "<invalid>"
_LEFT = ' style="text-align: left"'


def one_line(text: str) -> str:
    """The text on one line, with control characters escaped."""
    shown = (each if each.isprintable() else " " if each.isspace() else escape(each) for each in text)
    return " ".join("".join(shown).split())


def age(moment: str | None, now: datetime) -> str:
    """The time since `moment` (RFC 3339), such as 45s, 12m, 3h or 5d; empty for None, `INVALID` for another text."""
    if not moment:
        return ""
    begin = parse_time_or_none(moment)
    if begin is None:
        return INVALID
    return _duration(int((now - begin).total_seconds()))


def _duration(seconds: int) -> str:
    seconds = max(0, seconds)
    for below, unit, letter in _UNITS:
        if seconds < below:
            return f"{seconds // unit}{letter}"
    return f"{seconds // 86400}d"


def until(moment: str, now: datetime) -> str:
    """The time from now until `moment` (RFC 3339), as `age`; 0s if that has passed."""
    end = parse_time_or_none(moment)
    return _duration(int((end - now).total_seconds())) if end is not None else INVALID


def ago(moment: str, now: datetime) -> str:
    since = age(moment, now)
    return f"{since} ago" if since not in ("", INVALID) else since


def replica_ranges(replicas: Sequence[str]) -> str:
    """`worker-0..3, worker-5` for worker-0, worker-1, worker-2, worker-3 and worker-5; others as they are."""
    runs: list[tuple[str, int, int]] = []
    others: list[str] = []
    for replica in replicas:
        role, _, text = replica.rpartition("-")
        if not text.isdecimal():  # the launcher of an MPIJob has no index
            others.append(replica)
            continue
        index = int(text)
        if runs and runs[-1][0] == role and runs[-1][2] == index - 1:
            runs[-1] = (role, runs[-1][1], index)
        else:
            runs.append((role, index, index))
    ranges = (f"{role}-{first}" + (f"..{last}" if last > first else "") for role, first, last in runs)
    return ", ".join((*others, *ranges))


def display_width(text: str) -> int:
    """The number of terminal cells that the text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(each) for each in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fold(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken at spaces; a longer word is broken anywhere."""
    lines, line, taken = list[str](), "", 0
    for word in text.split(" "):
        joined, wanted = word, display_width(word)
        if line:
            joined, wanted = f"{line} {word}", taken + 1 + wanted
        if wanted <= width:
            line, taken = joined, wanted
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines.extend(full)
        taken = display_width(line)
    return [*lines, line]


def _pieces(word: str, width: int) -> Iterator[str]:
    begin = taken = 0
    for at, character in enumerate(word):
        taken += _character_width(character)
        if taken > width and at > begin:
            yield word[begin:at]
            begin, taken = at, _character_width(character)
    yield word[begin:]


class TextTable:
    """Rows with aligned columns. Each cell is on one line, and an empty cell shows as `-`."""

    def __init__(self, headers: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
        head = [] if headers is None else [[one_line(header.upper()) for header in headers]]
        self._rows = [*head, *map(_cleaned, rows)]
        self._widths = [max(map(display_width, column)) for column in zip(*self._rows, strict=True)]

    def lines(self, width: int | None = None, style: Style | None = None) -> list[str]:
        """All lines; where enough of `width` remains for the last column, that is folded."""
        left = 0 if width is None else width - sum(self._widths[:-1]) - _COLUMN_GAP * (len(self._widths) - 1)
        lines: list[str] = []
        for index, cells in enumerate(self._rows):
            folded = fold(cells[-1], left) if left >= _MIN_FOLDED_WIDTH else [cells[-1]]
            lines.append(self._line([*cells[:-1], folded[0]], index, style))
            lines.extend(self._line([*[""] * (len(cells) - 1), each], index, style) for each in folded[1:])
        return lines

    def line(self, cells: Sequence[str]) -> str:
        """A further row below the same columns, which keep their widths."""
        return self._line(_cleaned(cells), len(self._rows), None)

    def _line(self, cells: Sequence[str], index: int, style: Style | None) -> str:
        parts = []
        for column, (text, width) in enumerate(zip(cells, self._widths, strict=True)):
            shown = style(index, column, text) if style is not None and text else text
            parts.append(shown + " " * (width - display_width(text)))
        return (" " * _COLUMN_GAP).join(parts).rstrip()


def _cleaned(row: Sequence[str]) -> list[str]:
    return [one_line(cell) or "-" for cell in row]


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
        return "\n".join(TextTable(list(self._columns), self._rows()).lines())

    def _repr_html_(self) -> str:
        return html_table(list(self._columns), self._rows()) if self._items else html_element("p", "(none)")

    def _rows(self) -> list[list[str]]:
        return [[cell(item) for cell in self._columns.values()] for item in self._items]


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{_LEFT}>{html.escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(f'<td{_LEFT}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_fields(pairs: Mapping[str, str]) -> str:
    """Names and values; those without a value are left out."""
    rows = (
        f"<tr><th{_LEFT}>{html.escape(name)}</th><td{_LEFT}>{html.escape(value)}</td></tr>"
        for name, value in pairs.items()
        if value
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def html_element(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(text)}</{tag}>"
