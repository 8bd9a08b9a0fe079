"""The part of docs/interop.md that follows from runs with the programs of other projects (`make interop`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from generate.markdown import table
from interop.record import Record, read_all

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interop.md"
BEGIN, END = "<!-- begin: make generate -->\n", "<!-- end: make generate -->\n"
_KINDS = ("TFJob", "TrainJob")
# None: the rule was not tried with this kind.
_WORDS = {None: "not tried", True: "yes", False: "no"}


def render_interop() -> str:
    """Returns the page with its generated part; the rest of it is written by hand."""
    return replaced(PAGE.read_text(encoding="utf-8"), read_all())


def replaced(page: str, records: Sequence[Record]) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/interop.md lacks the lines {BEGIN.strip()} and {END.strip()}")
    return before + begin + "\n".join(_lines(records)) + "\n" + end + after


def _lines(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        yield ""
        yield f"Seen with {record.name} {record.version} and Kubernetes {record.kubernetes} on {record.date}:"
        yield ""
        rows = [(rule, *(_WORDS[kinds.get(kind)] for kind in _KINDS)) for rule, kinds in record.rules.items()]
        yield table(("rule", *_KINDS), rows).rstrip("\n")
    yield ""
