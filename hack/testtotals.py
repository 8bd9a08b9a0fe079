"""Adds up the counts that test/conftest.py wrote, one JSON line per pytest run, and prints them as pytest does."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    totals: Counter[str] = Counter()
    for line in Path(sys.argv[1]).read_text().splitlines():
        totals.update(json.loads(line))
    kinds = ["passed", *(kind for kind in ("failed", "error", "skipped", "not_applicable") if totals[kind])]
    counts = ", ".join(f"{totals[kind]} {kind.replace('_', ' ')}" for kind in kinds)
    print(f"\n==== in all: {counts} in {sys.argv[2]}s ====")


if __name__ == "__main__":
    main()
