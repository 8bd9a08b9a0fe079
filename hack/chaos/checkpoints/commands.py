"""The real `tfjob-controller checkpoint save` and `restore` as processes of this machine, on the storages of the run.

They show what nodes that share one clock and one kernel cannot: a clock that is hours wrong. And they remove at the end
what is old in the storages of all jobs, with a clean-up age of a second instead of an hour.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.1
_DEADLINE_SECONDS = 120.0
_LEFTOVER_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one job with its storage; `folder` is where it trains."""

    uri: str
    store_path: Path
    folder: Path
    keep: int
    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self.folder / "checkpoints"

    def write(self, step: int) -> None:
        """Writes a checkpoint that is complete at once."""
        unfinished = self.path / ".unfinished"
        unfinished.mkdir(parents=True)
        for name in ("part-0", "part-1"):
            (unfinished / name).write_bytes(f"{step} ".encode() + secrets.token_bytes(50_000))
        (unfinished / ".done").touch()
        unfinished.rename(self.path / f"checkpoint-{step}")

    def restore(self) -> int:
        """Restores into the folder; returns the step, 0 without a checkpoint. Raises CommandFailedError."""
        done = subprocess.run(
            self._argv("restore"),
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise CommandFailedError(f"restore ended with {done.returncode}: {done.stderr[-500:]}")
        restored: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])["restored"]
        return int(restored["step"]) if restored else 0

    def save_until(self, is_enough: Callable[[str], bool]) -> None:
        """Saves, and is killed as soon as its output is enough."""
        with self._saving() as saving:
            saving.wait_for(is_enough)
            saving.process.kill()

    def save_newest(self) -> None:
        """Saves what is complete, and ends as a sidecar does. Raises CommandFailedError."""
        with self._saving() as saving:
            saving.wait_for(lambda said: '{"checkpoint": ' in said)
            saving.process.send_signal(signal.SIGTERM)
            if saving.process.wait(_DEADLINE_SECONDS) != 0 or '{"checkpoint": ' not in saving.said():
                raise CommandFailedError(f"save ended with {saving.process.returncode}: {saving.said()[-500:]}")

    def _saving(self) -> _Saving:
        output = self.folder / "save.log"
        with output.open("wb") as log:
            argv = [*self._argv("save"), f"--keep={self.keep}", f"--leftover-seconds={_LEFTOVER_SECONDS}"]
            argv.append("--poll-seconds=1")
            process = subprocess.Popen(argv, env=self._environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return _Saving(process, output)

    def _argv(self, command: str) -> list[str]:
        words = (f"--storage-uri={self.uri}", f"--store-path={self.store_path}", f"--path={self.path}")
        return [sys.executable, "-m", "tfjob_controller", "checkpoint", command, *words]

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environ}


class CommandFailedError(Exception):
    """A command that had to succeed did not; its last words."""


@dataclass(frozen=True, slots=True)
class _Saving:
    process: subprocess.Popen[bytes]
    output: Path

    def __enter__(self) -> _Saving:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, is_enough: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not is_enough(self.said()) and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
