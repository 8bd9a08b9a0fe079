"""Jobs outside of the cluster whose clock is hours wrong, another one after each kill.

The nodes of the run share the clock of this machine. Therefore the commands of the two containers run here, with the
same storages, and are killed by SIGKILL at a random moment of a save.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.checkpoints.auditor import Auditor
from chaos.checkpoints.commands import CommandFailedError, Commands
from chaos.checkpoints.settings import Kill
from chaos.checkpoints.stories import Tally
from chaos.jobs.machines import Clocks

_LONGEST_SKEW_SECONDS = 3 * 3600
_KILLS_PER_JOB = 5
# How long a save takes at most; it is killed within this time.
_SAVE_SECONDS = 3.0


def skewed_jobs(kills: Sequence[Kill]) -> Iterator[tuple[str, Sequence[Kill]]]:
    """The names of the jobs for these kills, and the kills of each."""
    for number, start in enumerate(range(0, len(kills), _KILLS_PER_JOB)):
        yield f"skewed-{number:02d}", kills[start : start + _KILLS_PER_JOB]


@dataclass(frozen=True, slots=True)
class SkewedStory:
    """One job; its folder is empty at each start, as that of a new pod."""

    name: str
    kills: Sequence[Kill]
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
                self.tally.count(kill.kind, happened=self.clocks.can_jump)
            self.clocks.set(self.name, 0.0)
            self._resume()
        except CommandFailedError as error:
            self.auditor.report("unsuccessful", self.name, str(error))

    def _live_once(self, kill: Kill) -> None:
        self.clocks.set(self.name, (kill.chance * 2 - 1) * _LONGEST_SKEW_SECONDS)
        self.commands.write(self._resume() + 1)
        end = time.monotonic() + kill.chance * _SAVE_SECONDS
        # Half of them are killed when the checkpoint has been saved, while old ones are removed.
        has_saved = kill.chance * 10 % 1 < 0.5
        self.commands.save_until(
            lambda said: '{"checkpoint": ' in said if has_saved else time.monotonic() >= end,
        )

    def _resume(self) -> int:
        shutil.rmtree(self.commands.path, ignore_errors=True)
        self.auditor.look(self.name)
        started_at = time.time()
        step = self.commands.restore()
        self.auditor.judge_restore(self.name, step, started_at)
        return step
