"""Jobs made by chance: a seed and the same numbers give the same jobs, whatever is then done with them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tfjob_controller.simulator.jobs import SimJob, ms

# What docs/autoscaling.md has its results from.
MEAN_ARRIVALS = (15.0, 30.0, 60.0, 120.0)
WORKERS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Workload:
    """Poisson arrivals; each job has one parameter server and any of `workers`, alike often.

    Its work is log-normal, and proportional to its workers: `work_median` seconds for each of them. It can do with half
    of its workers (one at least), and use twice as many.
    """

    jobs: int = 100
    mean_arrival_seconds: float = 30.0
    workers: tuple[int, ...] = WORKERS
    work_median: float = 120.0
    work_sigma: float = 0.8

    def generate(self, seed: int) -> list[SimJob]:
        """In the order of their arrivals."""
        return list(self._jobs(random.Random(seed)))  # noqa: S311 -- a simulation

    def _jobs(self, rng: random.Random) -> Iterator[SimJob]:
        now = 0.0
        digits = len(str(self.jobs))
        for number in range(1, self.jobs + 1):
            now += rng.expovariate(1 / self.mean_arrival_seconds)
            workers = rng.choice(self.workers)
            work = workers * rng.lognormvariate(math.log(self.work_median), self.work_sigma)
            name = f"job-{number:0{digits}}"
            yield SimJob(name, ms(now), 1, workers, max(workers // 2, 1), 2 * workers, work)
