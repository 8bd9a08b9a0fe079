"""The auditors of hack/audit as processes beside a test.

with audited(kubeconfig): ...                 # the auditor of gangs; fails at the end with what it has found
with job_auditor(kubeconfig, namespace) as auditor:
    ...
    assert auditor.report()["violations"] == []
"""

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
# A test may start and end the gang scheduler, which takes time. On a busy machine, only the share of time that one
# program gets is counted.
_FIT_GRACE_SECONDS = 45.0
_LAG_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class AuditorProcess:
    process: subprocess.Popen[str]

    def report_outage(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def report(self) -> dict[str, Any]:
        """Ends the auditor and returns its report."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=_END_SECONDS)
        report: dict[str, Any] = json.loads(out)
        assert self.process.returncode == (1 if report["violations"] else 0)
        return report


@contextlib.contextmanager
def audited(kubeconfig: Path, *more: str) -> Iterator[None]:
    """Fails with the violations that the auditor of gangs has found, unless the block fails itself.

    `more` are the auditor's flags.
    """
    flags = (f"--fit-grace={_FIT_GRACE_SECONDS}", f"--lag={_LAG_SECONDS}", "--share-of-machine", *more)
    with _auditor("audit", f"--kubeconfig={kubeconfig}", *flags) as auditor:
        yield
        if violations := auditor.report()["violations"]:
            raise AssertionError(f"the auditor has found {violations}")


@contextlib.contextmanager
def job_auditor(kubeconfig: Path, namespace: str, *more: str) -> Iterator[AuditorProcess]:
    """Starts the auditor of jobs in one namespace, which works when the block begins. `more` are its flags."""
    with _auditor("audit.jobs", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *more) as auditor:
        yield auditor


@contextlib.contextmanager
def _auditor(module: str, *flags: str) -> Iterator[AuditorProcess]:
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
        yield AuditorProcess(process)
    finally:
        process.kill()
        process.wait()
