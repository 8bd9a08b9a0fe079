"""One simulation: jobs, a cluster, a policy; from the first arrival to the last end. Equal input gives equal output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tfjob_controller.simulator.cluster import ClusterShape, check_fits
from tfjob_controller.simulator.execution import Arrival, Event, Executions, PodCreated, Turn, Wake
from tfjob_controller.simulator.gangs import Gangs
from tfjob_controller.simulator.jobs import SimJob
from tfjob_controller.simulator.ledger import Ledger
from tfjob_controller.simulator.perpod import PerPod
from tfjob_controller.simulator.policy import Policy, Settings
from tfjob_controller.simulator.timeline import Timeline


class Scheduler(Protocol):
    """Decides what the jobs get. All events of an instant come first, then one `step`."""

    deadlock_ms: int
    evictions: int

    def arrive(self, job: SimJob) -> None: ...
    def ended(self, job: SimJob) -> None: ...
    def changed(self, name: str) -> None: ...
    def told(self, event: PodCreated | Wake) -> None: ...
    def step(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one job."""

    job: SimJob
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """What happened. Outcomes are in the order of the jobs."""

    shape: ClusterShape
    outcomes: tuple[Outcome, ...]
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
    jobs: Sequence[SimJob], shape: ClusterShape, policy: Policy, settings: Settings, *, detailed: bool = False
) -> Run:
    """Until all jobs have ended. `detailed`: with segments and levels. Raises SimulationError for a job too large.

    RuntimeError: jobs wait though nothing will happen any more, which is a fault of the rules, or here.
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
    outcomes = tuple(Outcome(job, executions.started_ms[job.name], executions.ended_ms[job.name]) for job in jobs)
    return Run(
        shape,
        outcomes,
        executions.ledger,
        executions.resizes,
        executions.restarts,
        scheduler.deadlock_ms,
        scheduler.evictions,
    )


def _scheduler(
    timeline: Timeline[Event], executions: Executions, shape: ClusterShape, policy: Policy, settings: Settings
) -> Scheduler:
    kind = Gangs if policy.gang else PerPod
    return kind(timeline, executions, shape.view(), policy, settings)


def _handle(event: Event, executions: Executions, scheduler: Scheduler) -> None:
    if isinstance(event, Arrival):
        scheduler.arrive(event.job)
    elif isinstance(event, Turn):
        ended = executions.turn(event)
        if ended is not None:
            scheduler.ended(ended)
        elif event.job in executions.running:
            scheduler.changed(event.job)
    else:
        scheduler.told(event)
