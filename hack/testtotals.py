"""Reads the counts that test/conftest.py wrote, one JSON line per pytest run: in the order of the runs.

`testtotals.py FILE SECONDS` prints their sum as pytest does, and `testtotals.py FILE` the failures of the last run that
CI runs once more, alone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# More failures have a common cause, and would take too long one by one.
MAX_RERUN = 10


def summed(runs: Sequence[dict[str, Any]]) -> str:
    """Returns the sum of all counts in words."""
    totals: Counter[str] = Counter()
    for run in runs:
        totals.update({kind: count for kind, count in run.items() if isinstance(count, int)})
    kinds = ["passed", *(kind for kind in ("failed", "error", "skipped", "not_applicable") if totals[kind])]
    return ", ".join(f"{totals[kind]} {kind.replace('_', ' ')}" for kind in kinds)


def to_rerun(run: dict[str, Any]) -> list[str]:
    """Returns the failed tests if they alone failed the run and are few; empty otherwise."""
    failures = list(dict.fromkeys(run["failures"]))
    return [] if run["skipped"] or len(failures) > MAX_RERUN else failures


def main() -> None:
    runs = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    if len(sys.argv) > 2:
        print(f"\n==== in all: {summed(runs)} in {sys.argv[2]}s ====")
        return
    for name in to_rerun(runs[-1]) if runs else ():
        print(name)


if __name__ == "__main__":
    main()
