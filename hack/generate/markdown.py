"""The Markdown of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def page(title: str, source: str, *parts: str) -> str:
    """Returns a whole page; `source` names the file to change instead of it."""
    head = f"<!-- Generated from {source} by `make generate`. -->\n\n# {title}"
    return "\n\n".join([head, *(part.strip() for part in parts)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
