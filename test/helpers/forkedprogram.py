"""`tfjob-controller …` as a process of its own, which starts in a moment.

It is forked from a server process that has imported everything already (multiprocessing's forkserver); from there on it
is the program as it is shipped, with its own memory, threads and signals. It ends with the tests.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Not huggingface_hub and gcsfs: they read settings from the environment when they are imported.
_IMPORTED = ("tfjob_controller.programs.manager", "tfjob_controller.cli", "s3fs", "helpers.forkedprogram")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_IMPORTED))


class ForkedProgram:
    """A process that runs or has ended. It appends its output to the files `out` and `error`."""

    def __init__(
        self, arguments: Sequence[str], *, out: Path, error: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        """Starts the process. Without `environ` it has the environment of the tests."""
        given = None if environ is None else dict(environ)
        self._process: ForkServerProcess = _context.Process(
            target=_main, args=(list(arguments), str(out), str(error), given), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Sends SIGKILL; returns when the process has ended."""
        self._process.kill()
        self._process.join(10)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float) -> int | None:
        """Returns the exit code, or minus the number of the signal that killed the process; None if it still runs."""
        self._process.join(timeout)
        return self._process.exitcode


def _main(arguments: list[str], out: str, error: str, environ: dict[str, str] | None) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for path, stream in ((out, sys.stdout), (error, sys.stderr)):
        with Path(path).open("ab", buffering=0) as file:
            os.dup2(file.fileno(), stream.fileno())
    if environ is not None:
        os.environ.clear()
        os.environ.update(environ)
    from tfjob_controller import cli

    sys.exit(cli.main(arguments))
