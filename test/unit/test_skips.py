"""A skipped test is never hidden: test/conftest.py, on a pytest of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST_FOLDER = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("ci", "code", "verdict"),
    [
        pytest.param("", 0, "was not proven here", id="at home it is said"),
        pytest.param("true", 1, "CI may skip nothing", id="in CI it fails the run"),
    ],
)
def test_a_skipped_test_is_said_loudly(tmp_path: Path, ci: str, code: int, verdict: str) -> None:
    (tmp_path / "test_x.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('the moon is not full')\n"
    )
    totals = tmp_path / "totals"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", str(tmp_path)],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "CI": ci,
            "TEST_TOTALS": str(totals),
            "PYTHONPATH": f"{TEST_FOLDER}:{TEST_FOLDER.parent / 'hack'}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout
    assert verdict in done.stdout
    assert "1 x Skipped: the moon is not full" in done.stdout
    assert json.loads(totals.read_text()) == {"passed": 1, "failed": 0, "error": 0, "skipped": 1}
