"""Progress for people: on standard error, so that standard output stays for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable

# Takes one finished line without its end.
Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """For tests and callers that show progress themselves."""
