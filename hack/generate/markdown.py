"""The Markdown of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def page(title: str, source: str, *parts: str) -> str:
    """Returns a whole page; `source` names the file to change instead of it."""
    head = f"<!-- Generated from {source} by `make generate`. -->\n\n# {title}"
    return "\n\n".join([head, *(part.strip() for part in parts)]) + "\n"


def with_part(whole: str, begin: str, end: str, part: str, missing: str) -> str:
    """Returns the page with another part between its two comments. Raises ValueError(missing) without them."""
    before, begun, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(missing)
    return before + begin + part + end + after


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
