"""What is simulated: jobs, and how fast they work. Times are whole milliseconds, so that moments can be compared.

The model of speed is an assumption, and all of it are parameters. One worker alone does one unit of work per second;
w workers do `w * doubling ** log2(w)`: each doubling keeps 90 % of its worth, as parameter servers and the network
take their part (0.9 was fixed before anything was simulated; DRAGON, Lin et al., CLOSER 2019, has no formula). A job
whose pods are on several nodes works at `spread` of that (0.75, likewise). A restart is half a minute
without progress: pods end and start, programs load, the checkpoint is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SECOND = 1000


class SimulationError(Exception):
    """What was asked for cannot be simulated; one line."""


def ms(seconds: float) -> int:
    """Whole milliseconds."""
    return round(seconds * SECOND)


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job. `work` is in seconds of a single worker; `gpus` are those of each worker, servers need none."""

    name: str
    arrival_ms: int
    servers: int
    workers: int
    least: int
    most: int
    work: float
    gpus: int = 1

    @property
    def pods(self) -> int:
        return self.servers + self.workers


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """See the module."""

    doubling: float = 0.9
    spread: float = 0.75
    restart_seconds: float = 30.0

    def speed(self, workers: int, nodes: int) -> float:
        """Units of work per second of so many workers, when all pods of the job are on so many nodes."""
        if workers < 1:
            return 0.0
        alone: float = workers * self.doubling ** math.log2(workers)
        return alone * self.spread if nodes > 1 else alone
