"""The recorded results of the tests on each version of Kubernetes and of Python, in two JSON files beside this one.

    python -m testruns check                    # whether `KUBERNETES` names a version that can be built
    python -m testruns kubernetes TOTALS        # what hack/run-tests calls after all integration tests
    python -m testruns python VERSION TOTALS    # what hack/run-pythons calls after the unit and property tests

`TOTALS` is the file to which test/conftest.py writes the counts of a run. `make generate` writes the tables in
docs/limits.md and docs/install.md from the records.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from localcluster import binaries, stack
from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import parse_version
from localcluster.kubernetesversions import chosen_minor
from localcluster.report import to_stderr

KUBERNETES, PYTHON = (Path(__file__).with_name(f"{name}runs.json") for name in ("kubernetes", "python"))


class Run(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One run of all tests."""

    version: str
    date: str
    passed: int
    failed: int
    skipped: int
    not_applicable: int = 0

    @property
    def minor(self) -> tuple[int, ...]:
        return parse_version(self.version)[:2]


def read(path: Path) -> list[Run]:
    """Returns the recorded runs, oldest version first."""
    return msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []


def run_of(version: str, totals: dict[str, Any]) -> Run:
    """Returns today's run with these counts. A test whose fixture fails has failed, too."""
    return Run(
        version=version,
        date=datetime.now(UTC).date().isoformat(),
        passed=totals["passed"],
        failed=totals["failed"] + totals["error"],
        skipped=totals["skipped"],
        not_applicable=totals["not_applicable"],
    )


def with_run(runs: Sequence[Run], new: Run) -> list[Run]:
    """Returns the runs with the new one in the place of the last one on that minor version."""
    others = [run for run in runs if run.minor != new.minor]
    return sorted([*others, new], key=lambda run: parse_version(run.version))


def record(path: Path, version: str, totals: Path) -> None:
    """Records the run whose counts are the last line of the file `totals`. Prints what to do next."""
    lines = totals.read_text().splitlines() if totals.exists() else []
    if not lines or stack.existing_kubeconfig() is not None:
        to_stderr("nothing is recorded: no test ran, or an existing cluster was used")
        return
    runs = with_run(read(path), run_of(version, msgspec.json.decode(lines[-1])))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")
    to_stderr(f"recorded in {path.name}; next: make generate")


def main(arguments: Sequence[str]) -> int:
    try:
        match arguments:
            case ["check"]:
                chosen_minor()
            case ["kubernetes", totals]:
                record(KUBERNETES, binaries.kubernetes_version(), Path(totals))
            case ["python", version, totals]:
                record(PYTHON, version, Path(totals))
            case _:
                to_stderr("usage: python -m testruns check | kubernetes TOTALS | python VERSION TOTALS")
                return 2
    except LocalClusterError as error:
        to_stderr(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
