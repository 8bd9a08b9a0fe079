"""The results of the unit and property tests with each Python, in pythonruns.json.

    python -m pythonruns VERSION LOG     # records the last line of pytest's log; what hack/run-pythons calls

`make generate` writes the table in docs/install.md from the records, the newest run of each minor version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

RECORDS = Path(__file__).with_suffix(".json")
# The supported versions.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")


class Run(msgspec.Struct, frozen=True):
    """One run of all unit and property tests."""

    version: str
    date: str
    passed: int
    failed: int
    skipped: int


def read(path: Path | None = None) -> list[Run]:
    """Returns the recorded runs, oldest version first."""
    file = path or RECORDS
    return msgspec.json.decode(file.read_bytes(), type=list[Run]) if file.exists() else []


def run_of(version: str, date: str, last_line: str) -> Run:
    """Returns the run that ended with this line of pytest. Raises ValueError if no test ran to its end."""
    counts = {outcome.removesuffix("s"): int(count) for count, outcome in _COUNT.findall(last_line)}
    if "passed" not in counts:
        raise ValueError(f"not the last line of a run of pytest: {last_line!r}")
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return Run(version, date, counts["passed"], failed, counts.get("skipped", 0))


def with_run(runs: Sequence[Run], new: Run) -> list[Run]:
    """Returns the runs with the new one in the place of that of its minor version."""
    others = [run for run in runs if minor_of(run.version) != minor_of(new.version)]
    return sorted([*others, new], key=lambda run: [int(part) for part in minor_of(run.version).split(".")])


def minor_of(version: str) -> str:
    """Returns 3.14 for 3.14.2."""
    return ".".join(version.split(".")[:2])


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m pythonruns VERSION LOG", file=sys.stderr)
        return 2
    version, log = arguments
    lines = Path(log).read_text("utf-8").splitlines()
    try:
        new = run_of(version, datetime.now(UTC).date().isoformat(), lines[-1] if lines else "")
    except ValueError as error:
        print(f"nothing is recorded: {error}", file=sys.stderr)
        return 1
    runs = with_run(read(), new)
    RECORDS.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")
    print(f"recorded in {RECORDS.name}; next: make generate", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
