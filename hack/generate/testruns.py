"""The tables in docs/limits.md and docs/install.md of the versions of Kubernetes and Python on which the tests ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import testruns
from generate.markdown import table, with_part
from localcluster.kubernetesversions import known_minors
from testruns import Run

KUBERNETES_PAGE, PYTHON_PAGE = Path("docs/limits.md"), Path("docs/install.md")
BEGIN = "<!-- Generated from hack/{} by `make generate`. -->"
END = "<!-- End of the generated part. -->"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def generate(root: Path) -> dict[Path, str]:
    """Returns the pages, of which only the tables are generated; nothing for a page that `root` lacks."""
    pages: dict[Path, str] = {}
    for path, render, records in (
        (KUBERNETES_PAGE, render_kubernetes, testruns.KUBERNETES),
        (PYTHON_PAGE, render_pythons, testruns.PYTHON),
    ):
        if (root / path).exists():
            pages[path] = render((root / path).read_text("utf-8"), testruns.read(records))
    return pages


def render_kubernetes(page: str, runs: Iterable[Run]) -> str:
    """Returns the page with the table between its two comments. Raises ValueError if they are missing."""
    heads = ("Kubernetes", "passed", "failed", "skipped", "not applicable", "date")

    def row(run: Run) -> tuple[str, ...]:
        counts = _counts(run.passed, run.failed, run.skipped, run.not_applicable)
        return run.version.removeprefix("v"), *counts, run.date

    return _with_table(page, testruns.KUBERNETES, heads, known_minors(), runs, row)


def render_pythons(page: str, runs: Iterable[Run]) -> str:
    """Does the same for the table of Pythons."""
    heads = ("Python", "passed", "failed", "skipped", "date")

    def row(run: Run) -> tuple[str, ...]:
        return run.version, *_counts(run.passed, run.failed, run.skipped), run.date

    return _with_table(page, testruns.PYTHON, heads, PYTHONS, runs, row)


def _with_table(
    page: str,
    records: Path,
    heads: tuple[str, ...],
    minors: Iterable[str],
    runs: Iterable[Run],
    row: Callable[[Run], tuple[str, ...]],
) -> str:
    by_minor = {".".join(map(str, run.minor)): row(run) for run in runs}
    missing = ("no run recorded", *[""] * (len(heads) - 2))
    rows = (by_minor.get(minor, (minor, *missing)) for minor in minors)
    begin = BEGIN.format(records.name)
    return with_part(page, begin, END, f"\n\n{table(heads, rows)}\n\n", f"the page lacks the comment {begin}")


def _counts(*counts: int) -> tuple[str, ...]:
    return tuple(f"{count:,}" for count in counts)
