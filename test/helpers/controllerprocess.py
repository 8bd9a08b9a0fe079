"""`tfjob-controller run` as a process of its own, which starts in a moment (helpers.forkedprogram)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from helpers.forkedprogram import ForkedProgram
from helpers.poll import eventually

WORKING = '"event": "workers started"'


class ControllerProcess(ForkedProgram):
    """See the module."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path, *flags: str) -> None:
        argv = ["run", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--metrics-bind-address=0"]
        self.log = log
        super().__init__([*argv, "--health-probe-bind-address=0", *flags], out=Path(os.devnull), error=log)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def logged(self, words: str) -> int:
        return self.log.read_text().count(words) if self.log.exists() else 0

    def await_log(self, words: str, timeout: float = 60.0) -> None:
        eventually(lambda: self.logged(words), timeout)


@contextlib.contextmanager
def controller_process(kubeconfig: Path, namespace: str, log: Path, *flags: str) -> Iterator[ControllerProcess]:
    """Starts a controller, which is killed at the end if it still runs."""
    process = ControllerProcess(kubeconfig, namespace, log, *flags)
    try:
        yield process
    finally:
        process.kill()
