"""Compares the output of a command with its page: the columns of tables, and every other line without figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^[A-Z][A-Z ()./-]*$")
# Parts that differ from run to run, or that the page leaves out.
_VARIES = re.compile(r"\d|…")


def missing_from(out: str, shown: Sequence[str]) -> list[str]:
    """Returns the lines of `shown` that the output lacks; several blanks count as one."""
    lines = [" ".join(line.split()) for line in shown if line.strip()]
    printed = {" ".join(line.split()) for line in out.splitlines()}
    if lines and is_header(lines[0]):
        return [] if lines[0] in printed else lines[:1]
    return [line for line in lines if not _VARIES.search(line) and line not in printed]


def is_header(line: str) -> bool:
    return _HEADER.match(line) is not None and " " in line
