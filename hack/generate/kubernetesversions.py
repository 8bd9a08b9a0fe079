"""The table in docs/limits.md of the versions of Kubernetes on which the tests ran."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import kubernetesruns
from generate.markdown import code, table, with_part
from kubernetesruns import Run
from localcluster.kubernetesversions import known_minors, minor_of

PAGE = Path("docs/limits.md")
BEGIN = "<!-- Generated from hack/kubernetesruns.json by `make generate`. -->"
END = "<!-- End of the generated part. -->"


def generate(root: Path) -> dict[Path, str]:
    """Returns the page, of which only the table is generated; nothing if `root` has no such page."""
    page = root / PAGE
    return {PAGE: render_versions(page.read_text("utf-8"), kubernetesruns.read())} if page.exists() else {}


def render_versions(page: str, runs: Iterable[Run]) -> str:
    """Returns the page with the table between its two comments. Raises ValueError if they are missing."""
    missing = f"{PAGE} lacks the comments around the table of Kubernetes versions"
    return with_part(page, BEGIN, END, f"\n\n{_table(runs)}\n\n", missing)


def _table(runs: Iterable[Run]) -> str:
    heads = ("Kubernetes", "integration tests", "passed", "failed", "not applicable", "date")
    by_minor = {minor_of(run.version): _row(run) for run in runs}
    return table(heads, (by_minor.get(minor, _missing(minor)) for minor in known_minors()))


def _missing(minor: str) -> tuple[str, ...]:
    """Returns the row of a version that can be built, and on which no run was recorded."""
    return minor, "no run recorded", "", "", "", ""


def _row(run: Run) -> tuple[str, ...]:
    tests = code(run.tests) or "all"
    counts = tuple(f"{count:,}" for count in (run.passed, run.failed, run.not_applicable))
    return run.version.removeprefix("v"), tests + (f", {run.skipped} skipped" if run.skipped else ""), *counts, run.date
