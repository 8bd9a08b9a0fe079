"""Writes what was seen with the program of another project, if `make interop` asks for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

# Results by the name of the test function, and the kind of job.
_seen: dict[str, dict[str, bool]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function, _, kind = report.nodeid.rpartition("::")[2].removesuffix("]").partition("[")
    has_failed = report.outcome == "failed"
    if report.when == "call" or has_failed:
        results = _seen.setdefault(function, {})
        results[kind] = results.get(kind, True) and not has_failed


def pytest_sessionfinish() -> None:
    path = os.environ.get("INTEROP_RESULTS")
    if path:
        Path(path).write_text(json.dumps(_seen))
