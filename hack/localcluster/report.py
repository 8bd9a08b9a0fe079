"""Prints progress to standard error, so that standard output contains only results."""

from __future__ import annotations

import sys
from collections.abc import Callable

# Called with one line, without the newline.
Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Prints nothing; for tests and callers that show progress themselves."""
