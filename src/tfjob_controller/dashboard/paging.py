"""Long lists in pages of `PAGE_ROWS` rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

PAGE_ROWS = 100
# The digits of a page's number in an address.
_MAX_DIGITS = 6

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    """The rows of one page of `pages`, which count from 1; `total` counts the rows of all."""

    rows: Sequence[RowT]
    total: int
    page: int
    pages: int


def page_number(text: str) -> int:
    """The number of a page in an address; 1 for anything else."""
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else 1


def page_of(rows: Sequence[RowT], number: int) -> Page[RowT]:
    """That page of the rows, or the last one if there are fewer."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(number, pages)
    return Page(rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(rows), page, pages)
