"""Builds and unpacks images in a separate process, while programs are compiled.

    with ImageWorker(["localhost/base"], report) as worker:
        build_programs()
        worker.wait()

An interrupted or failed block ends the process and all its descendants. The process is the command `image --unpack`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from localcluster import binaries
from localcluster.errors import LocalClusterError
from localcluster.report import Report

_ERROR = "error: "
# debootstrap and package tools clean up after SIGTERM.
_GRACE_SECONDS = 10.0


class ImageWorker:
    """The process. `names` must not be empty."""

    def __init__(self, names: Sequence[str], report: Report) -> None:
        self._report = report
        self._error = ""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "localcluster", "image", "--unpack", *names],
            env={**os.environ, "PYTHONPATH": str(binaries.HACK)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="image-worker", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._child.poll() is None:
                os.killpg(self._child.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(timeout=_GRACE_SECONDS)
        self._reader.join()

    def wait(self) -> None:
        """Returns when all images exist. Raises LocalClusterError with the last output of the process if it failed."""
        if self._child.wait() != 0:
            self._reader.join()
            raise LocalClusterError(self._error or f"the image build ended with exit code {self._child.returncode}")

    def _read(self) -> None:
        for line in self._child.stderr or ():
            if line.startswith(_ERROR):
                self._error = line.removeprefix(_ERROR).rstrip()
            else:
                self._report(line.rstrip())
