"""Tables and fields on a terminal, or as plain text that no width folds where the output is piped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfjob_controller.client.text import one_line

# Wider than any line: in a pipe a name must not be cut.
_UNBOUNDED = 1_000_000
# Columns that the last cell needs at least; where there are fewer, the terminal folds the line, as with kubectl.
_WORTH_FOLDING = 30
_STYLES = {
    "Running": "cyan",
    "Succeeded": "green",
    "Done": "green",
    "Failed": "bold red",
    "Warning": "yellow",
    "Creating": "yellow",
    "CleanUp": "yellow",
}


class Screen:
    """Writes to `out`; `width` is its own unless given. Rows of tables are folded in their last column only."""

    def __init__(self, out: IO[str], *, width: int | None = None) -> None:
        self._out = out
        plain = not out.isatty() and width is None
        self._console = _console(out, _UNBOUNDED if plain else width)
        self._endless = _console(out, _UNBOUNDED)

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(one_line(text), style="bold"))

    def line(self, text: str) -> None:
        self._console.print(Text(one_line(text)))

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
        taken = sum(
            max(cell_len(one_line(row[index])) for row in (headers, *rows)) + 2 for index in range(len(headers) - 1)
        )
        self._print(table, folds=self._console.width - taken >= _WORTH_FOLDING)

    def _print(self, table: Table, *, folds: bool = True) -> None:
        console = self._console if folds else self._endless
        with console.capture() as captured:
            console.print(table)
        # Cells are padded to the width of their column, the last ones too.
        self._out.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _console(out: IO[str], width: int | None) -> Console:
    return Console(file=out, width=width, highlight=False, markup=False, emoji=False)


def _cell(value: str) -> Text:
    shown = one_line(value)
    return Text(shown, style=_STYLES.get(shown, ""))
