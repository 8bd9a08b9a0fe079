"""`tfjob-controller run` as a process of its own, which starts in a moment.

It is forked from a server process that has imported everything already (multiprocessing's forkserver); from there on it
is the program as it is shipped: own memory, own threads, own signals, killed like any other. Dies with the tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from helpers.poll import eventually

_PR_SET_PDEATHSIG = 1
WORKING = '"event": "working"'

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tfjob_controller.manager", "tfjob_controller.cli", "helpers.controllerprocess"])


class ControllerProcess:
    """See the module."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path, *flags: str) -> None:
        argv = ["run", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--metrics-bind-address=0"]
        self.log = log
        self._process: ForkServerProcess = _context.Process(
            target=_main, args=([*argv, "--health-probe-bind-address=0", *flags], str(log)), daemon=True
        )
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)

    def terminate(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)

    def wait(self, timeout: float) -> int | None:
        """The exit code, minus the signal's number if one killed it; None if it still runs."""
        self._process.join(timeout)
        return self._process.exitcode

    def logged(self, words: str) -> int:
        return self.log.read_text().count(words) if self.log.exists() else 0

    def await_log(self, words: str, timeout: float = 60.0) -> None:
        eventually(lambda: self.logged(words), timeout, 0.002)


@contextlib.contextmanager
def controller_process(kubeconfig: Path, namespace: str, log: Path, *flags: str) -> Iterator[ControllerProcess]:
    """One that is killed at the end, if it still runs then."""
    process = ControllerProcess(kubeconfig, namespace, log, *flags)
    try:
        yield process
    finally:
        process.kill()


def _main(argv: list[str], log: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with Path(log).open("ab", buffering=0) as stream:
        os.dup2(stream.fileno(), sys.stderr.fileno())
    from tfjob_controller import cli

    sys.exit(cli.main(argv))
