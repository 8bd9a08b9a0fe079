"""The auditors (hack/audit) beside a test: that of jobs in the test's process or in its own, and that of gangs.

They watch from outside and share no code with the programs under test. In the test's own process, the test can read
the observations:

    with Auditor(api, namespace) as auditor:
        ...
        auditor.await_no_violations()   # once, at the end

Threads: one that processes the observations, besides those of the watches; all have ended after the block.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from audit.flags import Signals
from audit.jobs import auditor
from audit.jobs.judge import Limits
from localcluster.api import Api

# The time that jobs and the garbage collector need; objects that remain after it are violations.
_SETTLE_SECONDS = 120.0
# This limit only ends programs that hang.
_END_SECONDS = 120.0
# A test may start and end the gang scheduler, which takes time. On a busy machine, only the share of time that one
# program gets is counted.
_FIT_GRACE_SECONDS = 45.0
_LAG_SECONDS = 0.4
_HACK = Path(__file__).resolve().parents[2] / "hack"


class Auditor:
    """The auditor of the jobs in one namespace. Every kind has been listed when the block begins."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._signals = Signals()
        self._auditor = auditor.Auditor(api, auditor.paths_in(namespace), Limits(), _SETTLE_SECONDS, self._signals)
        self._thread = threading.Thread(target=self._auditor.watch, name="auditor", daemon=True)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._auditor)
        self._open.callback(self._end_watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def count(self) -> int:
        """The number of versions that were observed so far."""
        return self._auditor.count

    @property
    def gaps(self) -> int:
        """The number of watches whose version the server had compacted away."""
        return self._auditor.gaps

    def await_no_violations(self) -> None:
        """Waits for jobs and their clean-up; fails if violations remain."""
        self._end_watch()
        assert self._auditor.report()["violations"] == []

    def _end_watch(self) -> None:
        self._signals.stop.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class AuditorProcess:
    """`python -m audit.jobs`, or `python -m audit` for gangs."""

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
def job_auditor(kubeconfig: Path, namespace: str, *flags: str) -> Iterator[AuditorProcess]:
    """Starts an auditor of the jobs in one namespace, which works when the block begins."""
    with _auditor_process("audit.jobs", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *flags) as process:
        yield process


@contextlib.contextmanager
def gang_auditor(kubeconfig: Path, *flags: str) -> Iterator[None]:
    """Fails with the violations of gangs that the auditor has observed, unless the block fails itself."""
    limits = (f"--fit-grace={_FIT_GRACE_SECONDS}", f"--lag={_LAG_SECONDS}", "--share-of-machine")
    with _auditor_process("audit", f"--kubeconfig={kubeconfig}", *limits, *flags) as process:
        yield
        assert process.report()["violations"] == []


@contextlib.contextmanager
def _auditor_process(module: str, *flags: str) -> Iterator[AuditorProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_HACK)},
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().strip() == "auditing"
        yield AuditorProcess(process)
    finally:
        process.kill()
        process.wait()
