"""A program of this project as a process, from the source tree of a release or from this tree."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.poll import eventually
from localcluster import process
from localcluster.process import Identity

THIS_TREE = Path(__file__).resolve().parents[2] / "src"
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """`log` has its output. It ends with the stack that `start` names, if not before."""

    identity: Identity
    log: Path

    @classmethod
    def start(cls, source: Path, argv: Sequence[str], log: Path, stack: Path) -> Program:
        """`source` holds the package; `argv` as after `tfjob-controller`."""
        # PYTHONPATH has precedence over installed packages.
        environment = {"PYTHONPATH": str(source), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "tfjob_controller", *argv]
        return cls(process.spawn(command, log=log, mark=stack, env=environment), log)

    def await_log(self, words: str) -> None:
        eventually(lambda: self._says(words), period=0.05)

    def stop(self) -> None:
        """Stops the program as a kubelet does; fails unless it ends."""
        process.send(self.identity, signal.SIGTERM)
        assert not process.wait_gone([self.identity], _STOP_SECONDS), f"it did not end, see {self.log}"

    def _says(self, words: str) -> bool:
        said = self.log.read_text() if self.log.exists() else ""
        assert process.is_alive(self.identity), f"it ended: {said}"
        return words in said
