"""The auditor of jobs (hack/audit/jobs) beside a test: `python -m audit.jobs` in one namespace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HACK = Path(__file__).resolve().parents[2] / "hack"
_END_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class JobAuditor:
    process: subprocess.Popen[str]

    def tell_outage(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def verdict(self) -> dict[str, Any]:
        """End it; what it says."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=_END_SECONDS)
        found: dict[str, Any] = json.loads(out)
        assert self.process.returncode == (1 if found["violations"] else 0)
        return found


@contextlib.contextmanager
def job_auditor(kubeconfig: Path, namespace: str, *more: str) -> Iterator[JobAuditor]:
    """At work when the block begins. `more` are its flags."""
    argv = [sys.executable, "-m", "audit.jobs", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *more]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HACK)},
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().strip() == "auditing"
        yield JobAuditor(process)
    finally:
        process.kill()
        process.wait()
