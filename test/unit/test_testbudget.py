"""The rules of hack/testbudget.py: what a part of the tests costs, and when it costs too much."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import testbudget

TOOL = Path(testbudget.__file__)
BURN = "import time\nwhile time.process_time() < 0.4: pass\n"
# A process whose parent ends before it, as programs of a control plane do.
ORPHAN = (
    "import os, subprocess, sys\n"
    f"subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)\n"
    "os._exit(0)\n"
)


def cost(code: str) -> float:
    """The CPU seconds of a program, by the tool's own measurement in a process of its own."""
    script = (
        "import sys, testbudget\n"
        "testbudget.adopt_orphans()\n"
        "print(testbudget.run([sys.executable, '-c', sys.argv[1]])[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, code],
        env={"PYTHONPATH": str(TOOL.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return float(done.stdout)


def test_the_time_of_a_program_counts() -> None:
    assert 0.4 <= cost(BURN) < 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_the_time_of_what_outlives_its_parent_counts() -> None:
    assert 0.4 <= cost(ORPHAN) < 5


@pytest.mark.parametrize(("seconds", "is_within"), [(90.0, True), (119.0, True), (121.0, False)])
def test_a_part_may_exceed_its_budget_by_a_fifth(seconds: float, is_within: bool) -> None:
    found, words = testbudget.verdict("unit", seconds, 100.0, [(7.25, "test_x.py::test_slow")])
    assert found is is_within
    assert words.startswith(f"unit: {seconds:.0f} CPU seconds")
    assert ("test_x.py::test_slow" in words) is not is_within


@pytest.mark.parametrize(
    ("choice", "loop", "is_judged"), [("whole", 0.4, True), ("whole", 0.61, False), ("some", 0.4, False)]
)
def test_only_a_whole_part_on_a_comparable_machine_is_judged(choice: str, loop: float, is_judged: bool) -> None:
    assert testbudget.judges(choice, loop, 0.4) is is_judged


@pytest.mark.parametrize(("choice", "code"), [("whole", 3), ("some", 3), ("some", 0)])
def test_the_exit_code_is_that_of_the_tests(choice: str, code: int, tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "unit", str(tmp_path / "none"), choice, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", f"raise SystemExit({code})"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    assert "unit: " in done.stdout
