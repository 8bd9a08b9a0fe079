"""What a run comes to, in numbers. Times are seconds; utilisation is a share of all GPUs until the last job ends.

- `waiting`: from arrival until all pods have a node; `elapsed`: from there to the end; `completion`: both;
- `allocated`: GPUs that a job holds, whatever for; `working`: of a job that makes progress; `useful`: what that is
  worth in GPUs that work alone. Idle partial gangs, restarts, spread and many workers for one job make them differ;
- `deadlock`: nothing works, while jobs hold a part of what they need, and nobody can get more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfjob_controller.simulator.jobs import SECOND
from tfjob_controller.simulator.ledger import WORKING
from tfjob_controller.simulator.run import Outcome, Run

TIMES: Mapping[str, Callable[[Outcome], float]] = {
    "waiting": lambda each: (each.started_ms - each.job.arrival_ms) / SECOND,
    "elapsed": lambda each: (each.ended_ms - each.started_ms) / SECOND,
    "completion": lambda each: (each.ended_ms - each.job.arrival_ms) / SECOND,
}


def measures(run: Run) -> dict[str, float]:
    """By name, always the same names in the same order."""
    return {**dict(_times(run)), **_totals(run)}


def _times(run: Run) -> Iterator[tuple[str, float]]:
    for name, of in TIMES.items():
        values = [of(each) for each in run.outcomes]
        yield f"{name}_mean", statistics.fmean(values)
        yield f"{name}_median", statistics.median(values)
        yield f"{name}_p95", nearest_rank(values, 0.95)


def _totals(run: Run) -> dict[str, float]:
    makespan = run.makespan_ms / SECOND
    capacity = makespan * run.shape.gpus
    ledger = run.ledger
    return {
        "makespan": makespan,
        "allocated": sum(ledger.seconds.values()) / capacity,
        "working": ledger.seconds[WORKING] / capacity,
        "useful": ledger.useful_seconds / capacity,
        "resizes": float(run.resizes),
        "restarts": float(run.restarts),
        "deadlock": run.deadlock_ms / SECOND,
        "evictions": float(run.evictions),
    }


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The least value that so many are at or below."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
