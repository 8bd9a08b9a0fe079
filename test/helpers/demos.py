"""Runs the demos as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers import interrupt
from localcluster import stack

ROOT = Path(stack.__file__).parents[2]


def start_demo(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a demo whose standard output and error share one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=interrupt.allow,
    )


def interrupt_at(demo: subprocess.Popen[str], words: str, after_seconds: float = 0.0) -> None:
    """Sends Ctrl-C this long after the demo has printed these words; checks its exit code and output."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if words in line:
            break
    time.sleep(after_seconds)
    demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()
    assert demo.wait(60) == 128 + signal.SIGINT
    assert "Traceback" not in rest
    assert "interrupted: stopping everything that the demo started" in rest
