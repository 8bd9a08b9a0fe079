"""An auditor (hack/audit) as a process of its own beside a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HACK = Path(__file__).resolve().parents[2] / "hack"


@contextlib.contextmanager
def auditor_process(module: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `python -m module`, which works when the block begins and has ended after it."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HACK)},
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().strip() == "auditing"
        yield process
    finally:
        process.kill()
        process.wait()
