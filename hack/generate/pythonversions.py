"""The table in docs/install.md of the Pythons with which the unit tests ran."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pythonruns
from generate.markdown import table, with_part
from pythonruns import PYTHONS, Run, minor_of

PAGE = Path("docs/install.md")
BEGIN = "<!-- Generated from hack/pythonruns.json by `make generate`. -->"
END = "<!-- End of the generated part. -->"


def generate(root: Path) -> dict[Path, str]:
    """Returns the page, of which only the table is generated; nothing if `root` has no such page."""
    page = root / PAGE
    return {PAGE: render_runs(page.read_text("utf-8"), pythonruns.read())} if page.exists() else {}


def render_runs(page: str, runs: Iterable[Run]) -> str:
    """Returns the page with the table between its two comments. Raises ValueError if they are missing."""
    heads = ("Python", "passed", "failed", "skipped", "date")
    by_minor = {minor_of(run.version): _row(run) for run in runs}
    rows = (by_minor.get(minor, (minor, "no run recorded", "", "", "")) for minor in PYTHONS)
    missing = f"{PAGE} lacks the comments around the table of Pythons"
    return with_part(page, BEGIN, END, f"\n\n{table(heads, rows)}\n\n", missing)


def _row(run: Run) -> tuple[str, ...]:
    return run.version, f"{run.passed:,}", f"{run.failed:,}", f"{run.skipped:,}", run.date
