"""The printer of programs for people. `make verify` forbids `print` and `sys.stdout.write` beside it.

Names, messages and titles of columns come from an API server that may be hostile, so every character that is not
printable is shown as its escape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from tfjob_controller.util.text import escape


def visible(line: str, shown: Callable[[str], str] = escape) -> str:
    """The line with `shown` of each character that is not printable."""
    return line if line.isprintable() else "".join(each if each.isprintable() else shown(each) for each in line)


def print_line(line: str, stream: TextIO | None = None, *, flush: bool = False) -> None:
    """Prints one line to standard output or `stream`: a line break in it is shown too."""
    print(visible(line), file=stream or sys.stdout, flush=flush)


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Prints lines to standard output or `stream`. Tabs, too, are kept."""
    for line in text.removesuffix("\n").split("\n"):
        print("\t".join(map(visible, line.split("\t"))), file=stream or sys.stdout)
