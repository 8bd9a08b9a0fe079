"""Measures the share of time that a busy machine gives to one runnable thread.

A deadline in seconds of wall clock time means little where ten programs share two cores and each gets a fifth of the
time. The number of runnable threads (/proc/loadavg) shows that share. It is sampled several times a second, and each
sample stands for the time since the previous one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_LOADAVG = Path("/proc/loadavg")


def runnable_threads() -> int:
    """Returns the number of runnable threads of the machine, including the caller; 1 if it is unknown."""
    try:
        return int(_LOADAVG.read_text().split()[3].partition("/")[0])
    except OSError:
        return 1


class LostTime:
    """Counts the time that other programs used. Not thread-safe."""

    def __init__(self, runnable: Callable[[], int] = runnable_threads, cores: int | None = None) -> None:
        self._runnable = runnable
        self._cores = cores or os.cpu_count() or 1
        self._sampled_at: float | None = None

    def since_last_sample(self, now: float) -> float:
        """Returns the time since the last call that an always runnable thread did not get; 0 at the first call."""
        before, self._sampled_at = self._sampled_at, now
        if before is None:
            return 0.0
        return (now - before) * (1.0 - min(1.0, self._cores / max(1, self._runnable())))
