"""The results of the integration tests on each version of Kubernetes, in kubernetesruns.json.

    python -m kubernetesruns check                       # whether `KUBERNETES` names a version that can be built
    python -m kubernetesruns record TOTALS [ARGUMENT…]   # what hack/run-tests calls after the integration tests

`make test KUBERNETES=1.34` records its run, and `make generate` writes the table in docs/limits.md from the records. A
run of chosen tests (arguments of pytest) says which; it does not replace a run of all tests on the same patch version.
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
from localcluster.kubernetesversions import chosen_minor, minor_of
from localcluster.report import to_stderr

RECORDS = Path(__file__).with_suffix(".json")


class Run(msgspec.Struct, frozen=True, rename="camel"):
    """One run. `tests` are the arguments that chose some tests; empty: all of them."""

    version: str
    date: str
    passed: int
    failed: int
    not_applicable: int
    skipped: int
    tests: str = ""


def read(path: Path = RECORDS) -> list[Run]:
    """Returns the recorded runs, oldest version first."""
    return msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []


def run_of(version: str, date: str, totals: dict[str, int], arguments: Sequence[str]) -> Run:
    """Returns the run with these counts of test/conftest.py. A test whose fixture fails has failed, too."""
    return Run(
        version=version,
        date=date,
        passed=totals["passed"],
        failed=totals["failed"] + totals["error"],
        not_applicable=totals["not_applicable"],
        skipped=totals["skipped"],
        tests=" ".join(arguments),
    )


def with_run(runs: Sequence[Run], new: Run) -> list[Run]:
    """Returns the runs with the new one in the place of the last one on that minor version."""
    of_minor = [run for run in runs if minor_of(run.version) == minor_of(new.version)]
    if new.tests and any(run.version == new.version and not run.tests for run in of_minor):
        return list(runs)
    others = [run for run in runs if run not in of_minor]
    return sorted([*others, new], key=lambda run: parse_version(run.version))


def record(totals: Path, arguments: Sequence[str], records: Path = RECORDS) -> None:
    """Records the run whose counts are the last line of the file `totals`. Prints what to do next."""
    lines = totals.read_text().splitlines()
    if not lines or stack.existing_kubeconfig() is not None:
        to_stderr("nothing is recorded: no test ran, or an existing cluster was used")
        return
    counts: dict[str, Any] = msgspec.json.decode(lines[-1])
    before = read(records)
    runs = with_run(
        before, run_of(binaries.kubernetes_version(), datetime.now(UTC).date().isoformat(), counts, arguments)
    )
    if runs == before:
        to_stderr("nothing is recorded: a run of all tests on this version is more than one of chosen tests")
        return
    records.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")
    to_stderr(f"recorded in {records.name}; next: make generate")


def main(arguments: Sequence[str]) -> int:
    try:
        if arguments[:1] == ["check"]:
            chosen_minor()
        elif arguments[:1] == ["record"] and len(arguments) > 1:
            record(Path(arguments[1]), arguments[2:])
        else:
            to_stderr("usage: python -m kubernetesruns check | record TOTALS [ARGUMENT…]")
            return 2
    except LocalClusterError as error:
        to_stderr(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
