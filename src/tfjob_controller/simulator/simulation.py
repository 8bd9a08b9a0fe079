"""One simulation: jobs, a cluster and a policy, from the first arrival to the last end; and its measures.

Equal input gives equal output. Times of measures are seconds; utilisation is a share of all GPUs until the last job
ends:

- `waiting`: from arrival until all pods have a node; `elapsed`: from there to the end; `completion`: both;
- `allocated`: GPUs that a job holds; `working`: of a job that makes progress; `useful`: what that is worth in GPUs that
  work alone. Idle partial gangs, restarts, spread pods and many workers for one job make them differ;
- `deadlock`: nothing works, while jobs hold a part of what they need, and none can get more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfjob_controller.simulator.cluster import ClusterShape, check_fits
from tfjob_controller.simulator.execution import (
    WORKING,
    Arrival,
    Event,
    Executions,
    JobDue,
    Ledger,
    PodCreated,
    Timeline,
    Wake,
)
from tfjob_controller.simulator.gangscheduling import SimulatedGangScheduler
from tfjob_controller.simulator.jobs import SECOND, SimJob
from tfjob_controller.simulator.podscheduling import SimulatedKubeScheduler
from tfjob_controller.simulator.policies import SchedulingPolicy, SimulationSettings


class Scheduler(Protocol):
    """Decides what the jobs get. All events of an instant come first, then one `step`."""

    deadlock_ms: int
    evictions: int

    def on_arrival(self, job: SimJob) -> None: ...
    def on_end(self, job: SimJob) -> None: ...
    def on_resume(self, name: str) -> None: ...
    def on_event(self, event: PodCreated | Wake) -> None: ...
    def step(self) -> None: ...


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """When one job started and ended."""

    job: SimJob
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """What happened. Outcomes are in the order of the jobs."""

    shape: ClusterShape
    outcomes: tuple[JobOutcome, ...]
    ledger: Ledger
    resizes: int
    restarts: int
    deadlock_ms: int
    evictions: int

    @property
    def makespan_ms(self) -> int:
        """From the first arrival to the last end."""
        return max(each.ended_ms for each in self.outcomes) - min(each.job.arrival_ms for each in self.outcomes)


def simulate(
    jobs: Sequence[SimJob],
    shape: ClusterShape,
    policy: SchedulingPolicy,
    settings: SimulationSettings,
    *,
    detailed: bool = False,
) -> SimulationRun:
    """Runs until all jobs have ended. `detailed`: with segments and levels. Raises SimulationError for a job too large.

    Raises RuntimeError if jobs wait although nothing will happen any more, which is a defect of the rules or of the
    simulator.
    """
    check_fits(jobs, shape)
    timeline: Timeline[Event] = Timeline()
    executions = Executions(timeline, Ledger(detailed), settings.speed)
    scheduler = _scheduler(timeline, executions, shape, policy, settings)
    for job in jobs:
        timeline.put(job.arrival_ms, Arrival(job))
    while len(executions.ended_ms) < len(jobs):
        if not timeline:
            raise RuntimeError(f"{len(jobs) - len(executions.ended_ms)} jobs wait for ever under {policy.name}")
        for event in timeline.take():
            _handle(event, executions, scheduler)
        scheduler.step()
    outcomes = tuple(JobOutcome(job, executions.started_ms[job.name], executions.ended_ms[job.name]) for job in jobs)
    return SimulationRun(
        shape,
        outcomes,
        executions.ledger,
        executions.resizes,
        executions.restarts,
        scheduler.deadlock_ms,
        scheduler.evictions,
    )


def _scheduler(
    timeline: Timeline[Event],
    executions: Executions,
    shape: ClusterShape,
    policy: SchedulingPolicy,
    settings: SimulationSettings,
) -> Scheduler:
    kind = SimulatedGangScheduler if policy.gang else SimulatedKubeScheduler
    return kind(timeline, executions, shape.view(), policy, settings)


def _handle(event: Event, executions: Executions, scheduler: Scheduler) -> None:
    if isinstance(event, Arrival):
        scheduler.on_arrival(event.job)
    elif isinstance(event, JobDue):
        ended = executions.advance(event)
        if ended is not None:
            scheduler.on_end(ended)
        elif event.job in executions.running:
            scheduler.on_resume(event.job)
    else:
        scheduler.on_event(event)


TIMES: Mapping[str, Callable[[JobOutcome], float]] = {
    "waiting": lambda each: (each.started_ms - each.job.arrival_ms) / SECOND,
    "elapsed": lambda each: (each.ended_ms - each.started_ms) / SECOND,
    "completion": lambda each: (each.ended_ms - each.job.arrival_ms) / SECOND,
}


def measures(run: SimulationRun) -> dict[str, float]:
    """Returns the measures by name: always the same names in the same order."""
    return {**dict(_times(run)), **_totals(run)}


def _times(run: SimulationRun) -> Iterator[tuple[str, float]]:
    for name, of in TIMES.items():
        values = [of(each) for each in run.outcomes]
        yield f"{name}_mean", statistics.fmean(values)
        yield f"{name}_median", statistics.median(values)
        yield f"{name}_p95", nearest_rank(values, 0.95)


def _totals(run: SimulationRun) -> dict[str, float]:
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
    """Returns the least value that at least this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
