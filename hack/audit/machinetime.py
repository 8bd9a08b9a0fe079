"""How much of the passing time a busy machine has given to one program that wanted to run.

A deadline in seconds of the wall clock says little where ten programs share two cores: each of them gets a fifth of the
time. The number of threads that want to run (/proc/loadavg) tells how much. It is looked at a few times in a second,
and each look stands for the time since the one before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_LOADAVG = Path("/proc/loadavg")


def threads_that_want_to_run() -> int:
    """Now, on the whole machine, the caller included; 1 where the system does not tell."""
    try:
        return int(_LOADAVG.read_text().split()[3].partition("/")[0])
    except OSError:
        return 1


class LostTime:
    """Counts the time that others had. One thread at a time."""

    def __init__(self, wanting: Callable[[], int] = threads_that_want_to_run, cores: int | None = None) -> None:
        self._wanting = wanting
        self._cores = cores or os.cpu_count() or 1
        self._looked_at: float | None = None

    def since_last_look(self, now: float) -> float:
        """Seconds of those since the last call that a program which always wants to run did not get; 0 at first."""
        before, self._looked_at = self._looked_at, now
        if before is None:
            return 0.0
        return (now - before) * (1.0 - min(1.0, self._cores / max(1, self._wanting())))
