"""Jobs outside of the cluster whose clock is hours wrong, another one after each kill; and a last save for every job.

The nodes of the run share the clock of this machine. Therefore the real `tfjob-controller checkpoint save` and
`restore` run here as processes, with the same storages, and are killed by SIGKILL at a random moment of a save. At the
end they remove what is old in the storages of all jobs, with a clean-up age of a second instead of an hour.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.checkpoints.auditor import Auditor
from lab.checkpoints.stories import Tally
from lab.injection import Fault
from lab.machines import Clocks

_POLL_SECONDS = 0.1
_DEADLINE_SECONDS = 120.0
_LEFTOVER_SECONDS = 1
_LONGEST_SKEW_SECONDS = 3 * 3600
_KILLS_PER_JOB = 5
# How long a save takes at most; it is killed within this time.
_SAVE_SECONDS = 3.0


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
        argv = self._argv("restore")
        try:
            out = subprocess.check_output(
                argv, env=self._environ, stderr=subprocess.PIPE, text=True, timeout=_DEADLINE_SECONDS
            )
        except subprocess.CalledProcessError as error:
            raise CommandFailedError(f"restore ended with {error.returncode}: {error.stderr[-500:]}") from error
        restored: dict[str, Any] | None = json.loads(out.splitlines()[-1])["restored"]
        return int(restored["step"]) if restored else 0

    def save_until(self, is_enough: Callable[[bool], bool]) -> None:
        """Saves, and is killed as soon as it is enough; `is_enough` gets whether a checkpoint has been saved."""
        with self._saving() as saving:
            self._wait(saving, lambda: is_enough(self._has_saved))

    def save_newest(self) -> None:
        """Saves what is complete, and ends as a sidecar does. Raises CommandFailedError."""
        with self._saving() as saving:
            self._wait(saving, lambda: self._has_saved)
            saving.send_signal(signal.SIGTERM)
            if saving.wait(_DEADLINE_SECONDS) != 0 or not self._has_saved:
                raise CommandFailedError(f"save ended with {saving.returncode}: {self._output[-500:]}")

    @contextlib.contextmanager
    def _saving(self) -> Iterator[subprocess.Popen[bytes]]:
        """Runs the command, which is killed at the end of the block."""
        argv = [*self._argv("save"), f"--keep={self.keep}", f"--leftover-seconds={_LEFTOVER_SECONDS}"]
        with self._log.open("wb") as log:
            saving = subprocess.Popen(
                [*argv, "--poll-seconds=1"], env=self._environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            yield saving
        finally:
            saving.kill()
            saving.wait()

    def _wait(self, saving: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition() and saving.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    @property
    def _log(self) -> Path:
        return self.folder / "save.log"

    @property
    def _output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def _has_saved(self) -> bool:
        return '{"checkpoint": ' in self._output

    def _argv(self, command: str) -> list[str]:
        flags = (f"--storage-uri={self.uri}", f"--store-path={self.store_path}", f"--path={self.path}")
        return [sys.executable, "-m", "tfjob_controller", "checkpoint", command, *flags]

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environ}


class CommandFailedError(Exception):
    """A command that had to succeed did not; the end of its output."""


def skewed_jobs(kills: Sequence[Fault]) -> Iterator[tuple[str, Sequence[Fault]]]:
    """The names of the jobs for these kills, and the kills of each."""
    for number, start in enumerate(range(0, len(kills), _KILLS_PER_JOB)):
        yield f"skewed-{number:02d}", kills[start : start + _KILLS_PER_JOB]


@dataclass(frozen=True, slots=True)
class SkewedStory:
    """One job; its folder is empty at each start, as that of a new pod."""

    name: str
    kills: Sequence[Fault]
    commands: Commands
    clocks: Clocks
    auditor: Auditor
    tally: Tally

    def play(self) -> None:
        """Starts and kills the job as often as there are kills; violations go to the auditor."""
        try:
            for kill in self.kills:
                if self.tally.no_more.is_set():
                    break
                self._live_once(kill)
                self.tally.count(self.tally.kills if self.clocks.can_jump else self.tally.missed, kill.kind)
            self.clocks.set(self.name, 0.0)
            self._resume()
        except CommandFailedError as error:
            self.auditor.report("unsuccessful", self.name, str(error))

    def _live_once(self, kill: Fault) -> None:
        self.clocks.set(self.name, (kill.chance * 2 - 1) * _LONGEST_SKEW_SECONDS)
        self.commands.write(self._resume() + 1)
        end = time.monotonic() + kill.chance * _SAVE_SECONDS
        # Half of them are killed when the checkpoint has been saved, while old ones are removed.
        has_saved = kill.chance * 10 % 1 < 0.5
        self.commands.save_until(lambda is_saved: is_saved if has_saved else time.monotonic() >= end)

    def _resume(self) -> int:
        shutil.rmtree(self.commands.path, ignore_errors=True)
        self.auditor.look(self.name)
        started_at = time.time()
        step = self.commands.restore()
        self.auditor.judge_restore(self.name, step, started_at)
        return step
