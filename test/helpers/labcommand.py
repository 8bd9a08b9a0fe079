"""Runs a command of `hack/lab` as make does, in a small size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def play(module: str, variables: Mapping[str, str], seconds: float) -> list[dict[str, Any]]:
    """Runs a command that has to succeed within that time, and returns its JSON lines."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT / "hack")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]
