"""A skipped test is never hidden, and a failed one is named to be run again: test/conftest.py, on its own pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import testtotals

TEST_FOLDER = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("ci", "code", "verdict"),
    [
        pytest.param("", 0, "was not proven here", id="at home it is said"),
        pytest.param("true", 1, "CI may skip nothing", id="in CI it fails the run"),
    ],
)
def test_a_skipped_test_is_said_loudly(tmp_path: Path, ci: str, code: int, verdict: str) -> None:
    done = run(
        tmp_path, "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('the moon is not full')\n", CI=ci
    )
    assert done.returncode == code, done.stdout
    assert verdict in done.stdout
    assert "1 x Skipped: the moon is not full" in done.stdout
    assert counts(tmp_path) == {"passed": 1, "failed": 0, "error": 0, "skipped": 1, "not_applicable": 0}
    assert testtotals.to_rerun(totals(tmp_path)) == []


MARKED = """
import pytest
@pytest.mark.kubernetes("1.33", "of the oldest")
def test_a(): pass
@pytest.mark.kubernetes("1.36", "of the newest")
def test_b(): pass
"""


FAILING = """
import pytest
@pytest.fixture
def broken():
    yield
    assert False
def test_a(): pass
@pytest.mark.parametrize("value", ["a b"])
def test_b(value): assert False
def test_c(broken): assert False
"""


def test_a_test_of_a_newer_kubernetes_is_not_applicable_to_an_older_one(tmp_path: Path) -> None:
    done = run(tmp_path, MARKED, CI="true", KUBERNETES="1.34")
    assert done.returncode == 0, done.stdout
    assert "needs Kubernetes 1.36, this is 1.34: of the newest" in done.stdout
    assert counts(tmp_path) == {"passed": 1, "failed": 0, "error": 0, "skipped": 0, "not_applicable": 1}


def test_a_few_failures_are_named_once_each_to_be_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING)
    assert (done.returncode, counts(tmp_path)["failed"], counts(tmp_path)["error"]) == (1, 2, 1)
    assert testtotals.to_rerun(totals(tmp_path)) == ["test_x.py::test_b[a b]", "test_x.py::test_c"]
    assert testtotals.summed([totals(tmp_path)] * 2) == "2 passed, 4 failed, 2 error"


def test_many_failures_have_a_common_cause_and_are_not_run_again() -> None:
    failures = [f"test_x.py::test_a[{number}]" for number in range(testtotals.MAX_RERUN + 1)]
    assert testtotals.to_rerun({"skipped": 0, "failures": failures[1:]}) == failures[1:]
    assert testtotals.to_rerun({"skipped": 0, "failures": failures}) == []


def test_on_the_default_version_every_test_applies(tmp_path: Path) -> None:
    done = run(tmp_path, MARKED.replace("1.33", "1.99"), CI="true")
    assert done.returncode == 1
    assert "needs Kubernetes 1.99, but the default version is 1.36" in done.stdout
    assert counts(tmp_path)["not_applicable"] == 0


def test_a_version_that_cannot_be_built_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, MARKED, KUBERNETES="1.12")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: KUBERNETES=1.12: this version is not locked here; choose one of 1.33" in done.stderr


def run(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest with test/conftest.py on a module with this text."""
    (folder / "test_x.py").write_text(text)
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_") and name not in ("KUBERNETES", "KUBECONFIG", "CI")
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", str(folder)],
        env={
            **own,
            **environment,
            "TEST_TOTALS": str(folder / "totals"),
            "PYTHONPATH": f"{TEST_FOLDER}:{TEST_FOLDER.parent / 'hack'}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def counts(folder: Path) -> dict[str, int]:
    return {kind: count for kind, count in totals(folder).items() if isinstance(count, int)}


def totals(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "totals").read_text())
    return found
