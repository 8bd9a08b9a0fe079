"""The auditor of jobs (hack/audit/jobs) beside a test: `python -m audit.jobs` in one namespace."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.auditorprocess import auditor_process

_END_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class JobAuditor:
    process: subprocess.Popen[str]

    def report_outage(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def report(self) -> dict[str, Any]:
        """Ends the auditor and returns its report."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=_END_SECONDS)
        found: dict[str, Any] = json.loads(out)
        assert self.process.returncode == (1 if found["violations"] else 0)
        return found


@contextlib.contextmanager
def job_auditor(kubeconfig: Path, namespace: str, *more: str) -> Iterator[JobAuditor]:
    """Starts an auditor, which works when the block begins. `more` are its flags."""
    flags = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *more)
    with auditor_process("audit.jobs", *flags) as process:
        yield JobAuditor(process)
