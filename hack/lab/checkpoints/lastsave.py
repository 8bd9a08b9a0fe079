"""One more save to the storage of a job at the end of the run, which removes what is old there.

The real `tfjob-controller checkpoint save` runs as a process on this machine, with a clean-up age of a second instead
of an hour.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.1
_DEADLINE_SECONDS = 120.0
_LEFTOVER_SECONDS = 1
_SAVED = '{"checkpoint": '


class SaveFailedError(Exception):
    """A save did not succeed; the end of its output."""


@dataclass(frozen=True, slots=True)
class LastSave:
    """`folder` exists and is empty; `uri` and `store_path` are the flags of the storage."""

    uri: str
    store_path: Path
    folder: Path
    keep: int
    environ: Mapping[str, str]

    def run(self, step: int) -> None:
        """Saves a checkpoint of that step, and ends as a sidecar does. Raises SaveFailedError."""
        checkpoint = self.folder / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "part-0").write_bytes(secrets.token_bytes(50_000))
        (checkpoint / ".done").touch()
        # What is older than a second by the clock of the storage may be removed.
        time.sleep(_LEFTOVER_SECONDS + 0.1)
        log = self.folder / "save.log"
        with log.open("wb") as output:
            saving = subprocess.Popen(
                self._argv, env={**os.environ, **self.environ}, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        try:
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while _SAVED not in log.read_text() and saving.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            saving.send_signal(signal.SIGTERM)
            code = saving.wait(_DEADLINE_SECONDS)
        finally:
            saving.kill()
            saving.wait()
        text = log.read_text()
        if code != 0 or _SAVED not in text:
            raise SaveFailedError(f"save ended with {code}: {text[-500:]}")

    @property
    def _argv(self) -> list[str]:
        return [
            *(sys.executable, "-m", "tfjob_controller", "checkpoint", "save"),
            *(f"--storage-uri={self.uri}", f"--store-path={self.store_path}", f"--path={self.folder / 'checkpoints'}"),
            *(f"--keep={self.keep}", f"--leftover-seconds={_LEFTOVER_SECONDS}", "--poll-seconds=1"),
        ]
