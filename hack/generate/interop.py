"""The part of docs/interop.md that follows from runs with the programs of other projects (`make interop`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from generate.markdown import table, with_part
from interop.record import Record, read_all
from tfjob_controller.kinds.names import OWN_KIND_NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interop.md"
BEGIN, END = "<!-- begin: make generate -->\n", "<!-- end: make generate -->\n"
_KINDS = [name.kind for name in OWN_KIND_NAMES]
_NOT_TRIED = "-"


def render_interop() -> str:
    """Returns the page with its generated part; the rest of it is written by hand."""
    return replaced(PAGE.read_text(encoding="utf-8"), read_all())


def replaced(page: str, records: Sequence[Record]) -> str:
    missing = f"docs/interop.md lacks the lines {BEGIN.strip()} and {END.strip()}"
    return with_part(page, BEGIN, END, "\n".join(_lines(records)) + "\n", missing)


def _lines(records: Sequence[Record]) -> Iterator[str]:
    """Yields a table of the programs, and one with a row for each rule and a column for each program."""
    yield ""
    rows = [(record.name, record.version, record.kubernetes, record.date) for record in records]
    yield table(("program", "version", "Kubernetes", "seen on"), rows).rstrip("\n")
    yield ""
    yield f"With both kinds of jobs; {_NOT_TRIED} is a rule that does not apply to the program, or was not tried:"
    yield ""
    rules = list(dict.fromkeys(rule for record in records for rule in record.rules))
    rules.sort(key=lambda rule: -sum(rule in record.rules for record in records))
    cells = [(rule, *(_cell(record.rules.get(rule, {})) for record in records)) for rule in rules]
    yield table(("rule", *(record.name for record in records)), cells).rstrip("\n")
    yield ""


def _cell(kinds: Mapping[str, bool]) -> str:
    """Returns `yes` or `no` if all kinds are alike, else the word for each kind."""
    results = [{None: _NOT_TRIED, True: "yes", False: "no"}[kinds.get(kind)] for kind in _KINDS]
    if len(set(results)) == 1:
        return results[0]
    return ", ".join(f"{kind}: {result}" for kind, result in zip(_KINDS, results, strict=True))
