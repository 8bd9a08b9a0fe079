"""Tables and fields on a terminal, or as plain text that no width folds where the output is piped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wider than any line: in a pipe a name must not be cut.
_UNBOUNDED = 1_000_000
_STYLES = {
    "Running": "cyan",
    "Succeeded": "green",
    "Done": "green",
    "Failed": "bold red",
    "Warning": "yellow",
    "Creating": "yellow",
    "CleanUp": "yellow",
}


def visible(text: str) -> str:
    """On one line and without control characters: what a program wrote must not rule the reader's terminal."""
    return " ".join("".join(each if each.isprintable() else _escaped(each) for each in text).split())


def _escaped(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode()


class Screen:
    """Writes to `out`. Rows of tables are folded in their last column only."""

    def __init__(self, out: IO[str], *, width: int | None = None) -> None:
        self._out = out
        self._is_plain = not out.isatty() and width is None
        self._console = Console(
            file=out, width=_UNBOUNDED if self._is_plain else width, highlight=False, markup=False, emoji=False
        )

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(visible(text), style="bold"))

    def line(self, text: str) -> None:
        self._console.print(Text(visible(text)))

    def fields(self, fields: Mapping[str, str]) -> None:
        """Names and values; those without a value are left out."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            if value:
                grid.add_row(Text(name), _cell(value))
        self._print(grid)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Empty cells show as `-`."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for header in headers[:-1]:
            table.add_column(Text(header.upper()), no_wrap=True)
        table.add_column(Text(headers[-1].upper()), overflow="fold")
        for row in rows:
            table.add_row(*(_cell(each or "-") for each in row))
        self._print(table)

    def _print(self, table: Table) -> None:
        with self._without_padding():
            self._console.print(table)

    @contextlib.contextmanager
    def _without_padding(self) -> Iterator[None]:
        if not self._is_plain:
            yield
            return
        with self._console.capture() as captured:
            yield
        self._out.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _cell(value: str) -> Text:
    shown = visible(value)
    return Text(shown, style=_STYLES.get(shown, ""))
