"""Simulations: one run of jobs on a cluster under a policy, its measures, and many runs with their statistics.

Equal input gives equal output, whatever the number of processes. Times of measures are seconds; utilisation is a share
of all GPUs until the last job ends:

- `waiting`: from arrival until all pods have a node; `elapsed`: from there to the end; `completion`: both;
- `allocated`: GPUs that a job holds; `working`: of a job that makes progress; `useful`: what that is worth in GPUs that
  work alone. Idle partial gangs, restarts, spread pods and many workers for one job make them differ;
- `wasted`: GPUs that did work which was lost by preemption; on a shared cluster each tenant has times of its own;
- `deadlock`: nothing works, while jobs hold a part of what they need, and none can get more.

Many runs (`run_experiment`) simulate every policy on the same jobs, seed by seed. Means over seeds have Student's 95 %
confidence intervals.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

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
from tfjob_controller.simulator.model import (
    MEAN_ARRIVALS,
    SECOND,
    RandomWorkload,
    SchedulingPolicy,
    SimJob,
    SimulationSettings,
)
from tfjob_controller.simulator.podscheduling import SimulatedKubeScheduler

GRID_SHAPES = (ClusterShape(2, 4), ClusterShape(4, 4), ClusterShape(8, 4))


# One run


class Scheduler(Protocol):
    """Decides which GPUs the jobs get. All events of an instant come first, then one `step`."""

    deadlock_ms: int
    evictions: int

    def on_arrival(self, job: SimJob) -> None: ...
    def on_end(self, job: SimJob) -> None: ...
    def on_event(self, event: JobDue | PodCreated | Wake) -> None: ...
    def step(self) -> None: ...


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """When one job started and ended."""

    job: SimJob
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The record of one run. Outcomes are in the order of the jobs."""

    shape: ClusterShape
    outcomes: tuple[JobOutcome, ...]
    ledger: Ledger
    resizes: int
    restarts: int
    deadlock_ms: int
    evictions: int
    preemptions: int = 0
    wasted_seconds: float = 0.0


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
    timeline = Timeline()
    executions = Executions(
        timeline, Ledger(detailed), settings.speed, checkpoint_ms=round(settings.checkpoint_seconds * SECOND)
    )
    kind = SimulatedGangScheduler if policy.gang else SimulatedKubeScheduler
    scheduler: Scheduler = kind(timeline, executions, shape.view(), policy, settings)
    for job in jobs:
        timeline.put(job.arrival_ms, Arrival(job))
    while len(executions.ended_ms) < len(jobs):
        if not timeline:
            raise RuntimeError(f"{len(jobs) - len(executions.ended_ms)} jobs wait forever under {policy.name}")
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
        executions.preemptions,
        executions.wasted_seconds,
    )


def _handle(event: Event, executions: Executions, scheduler: Scheduler) -> None:
    if isinstance(event, Arrival):
        scheduler.on_arrival(event.job)
    elif isinstance(event, JobDue) and (ended := executions.advance(event)) is not None:
        scheduler.on_end(ended)
    else:
        scheduler.on_event(event)


TIMES: Mapping[str, Callable[[JobOutcome], float]] = {
    "waiting": lambda each: (each.started_ms - each.job.arrival_ms) / SECOND,
    "elapsed": lambda each: (each.ended_ms - each.started_ms) / SECOND,
    "completion": lambda each: (each.ended_ms - each.job.arrival_ms) / SECOND,
}


def measures(run: SimulationRun) -> dict[str, float]:
    """Returns the measures by name: always the same names in the same order."""
    found: dict[str, float] = {}
    for name, of in TIMES.items():
        values = [of(outcome) for outcome in run.outcomes]
        found[f"{name}_mean"] = statistics.fmean(values)
        found[f"{name}_median"] = statistics.median(values)
        found[f"{name}_p95"] = nearest_rank(values, 0.95)
    first, last = (
        min(outcome.job.arrival_ms for outcome in run.outcomes),
        max(outcome.ended_ms for outcome in run.outcomes),
    )
    makespan = (last - first) / SECOND
    capacity = makespan * run.shape.gpus
    ledger = run.ledger
    return found | {
        "makespan": makespan,
        "allocated": sum(ledger.seconds.values()) / capacity,
        "working": ledger.seconds[WORKING] / capacity,
        "useful": ledger.useful_seconds / capacity,
        "resizes": float(run.resizes),
        "restarts": float(run.restarts),
        "deadlock": run.deadlock_ms / SECOND,
        "evictions": float(run.evictions),
        "preemptions": float(run.preemptions),
        "wasted": run.wasted_seconds / capacity,
        **_by_tenant(run),
    }


_OF_TENANT = "waiting_mean of "


def tenants_of(findings: CellResults) -> list[str]:
    """Returns the tenants of a shared cluster; nothing if there is only one."""
    results = next(iter(findings.by_policy.values()))
    return [name.removeprefix(_OF_TENANT) for name in results[0].measures if name.startswith(_OF_TENANT)]


def tenant_of(job: SimJob) -> str:
    """Returns the name under which the measures of a job are told apart on a shared cluster."""
    return f"{job.namespace}, urgent" if job.priority else job.namespace


def _by_tenant(run: SimulationRun) -> dict[str, float]:
    """Returns the waiting and completion times of each tenant; nothing if there is only one."""
    tenants = sorted({tenant_of(outcome.job) for outcome in run.outcomes})
    if len(tenants) < 2:
        return {}
    found: dict[str, float] = {}
    for tenant in tenants:
        own = [outcome for outcome in run.outcomes if tenant_of(outcome.job) == tenant]
        for name in ("waiting", "completion"):
            values = [TIMES[name](each) for each in own]
            found[f"{name}_mean of {tenant}"] = statistics.fmean(values)
            found[f"{name}_p95 of {tenant}"] = nearest_rank(values, 0.95)
    return found


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Returns the least value that at least this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


# Many runs


@dataclass(frozen=True, slots=True)
class ExperimentCell:
    """One cluster and one kind of workload; or the jobs of a trace, which are the same for every seed."""

    name: str
    shape: ClusterShape
    workload: RandomWorkload = field(default_factory=RandomWorkload)
    trace: tuple[SimJob, ...] = ()

    def jobs(self, seed: int) -> Sequence[SimJob]:
        return self.trace or self.workload.generate(seed)


@dataclass(frozen=True, slots=True)
class RunResult:
    """`times` are those of all jobs, by name (`waiting` and so on). The ledger is kept for the first seed only."""

    measures: Mapping[str, float]
    times: Mapping[str, tuple[float, ...]]
    ledger: Ledger | None


@dataclass(frozen=True, slots=True)
class CellResults:
    """The results of one cell: for each policy one per seed, in the order of the seeds."""

    cell: ExperimentCell
    by_policy: Mapping[str, Sequence[RunResult]]

    def values(self, policy: str, measure: str) -> list[float]:
        return [each.measures[measure] for each in self.by_policy[policy]]

    def times(self, policy: str, name: str) -> list[float]:
        """Returns the times of all jobs of all seeds."""
        return [value for each in self.by_policy[policy] for value in each.times[name]]


def grid(workload: RandomWorkload) -> list[ExperimentCell]:
    """Returns all clusters with all mean arrivals of docs/simulator.md, with everything else as given."""
    return [
        workload_cell(shape, replace(workload, mean_arrival_seconds=mean))
        for shape in GRID_SHAPES
        for mean in MEAN_ARRIVALS
    ]


def workload_cell(shape: ClusterShape, workload: RandomWorkload) -> ExperimentCell:
    return ExperimentCell(f"{shape}-{workload.mean_arrival_seconds:g}s", shape, workload)


def run_experiment(
    cells: Sequence[ExperimentCell],
    policies: Sequence[SchedulingPolicy],
    seeds: Sequence[int],
    settings: SimulationSettings,
    *,
    processes: int,
    on_run: Callable[[], None] = lambda: None,
) -> list[CellResults]:
    """Runs everything, and calls `on_run` after each run."""
    tasks = [
        (cell, policy, seed, settings, seed == seeds[0]) for cell in cells for policy in policies for seed in seeds
    ]
    results = dict(_results(tasks, processes, on_run))
    in_order = iter(results[index] for index in range(len(tasks)))
    return [CellResults(cell, {policy.name: [next(in_order) for _ in seeds] for policy in policies}) for cell in cells]


# One run: cell, policy, seed, settings, and whether its ledger is kept.
_Task: TypeAlias = tuple[ExperimentCell, SchedulingPolicy, int, SimulationSettings, bool]


def _run(task: _Task) -> RunResult:
    cell, policy, seed, settings, detailed = task
    run = simulate(cell.jobs(seed), cell.shape, policy, settings, detailed=detailed)
    times = {name: tuple(map(of, run.outcomes)) for name, of in TIMES.items()}
    return RunResult(measures(run), times, run.ledger if detailed else None)


def _results(tasks: Sequence[_Task], processes: int, on_run: Callable[[], None]) -> Iterator[tuple[int, RunResult]]:
    if processes == 1 or len(tasks) == 1:
        for index, task in enumerate(tasks):
            yield index, _run(task)
            on_run()
        return
    # Spawned, not forked: this process has threads (the progress bar's).
    context = multiprocessing.get_context("spawn")
    # Ctrl-C reaches all processes of the terminal: this one ends the others.
    with ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        futures = {pool.submit(_run, task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                on_run()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom. Source: NIST/SEMATECH e-Handbook, table 1.3.6.7.2.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
# For more degrees of freedom that of 30 is used, which is slightly too wide.


@dataclass(frozen=True, slots=True)
class Interval:
    """`mean` ± `half`; None for a single run."""

    mean: float
    half: float | None


def interval(values: Sequence[float]) -> Interval:
    """Returns the interval of at least one value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None)
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return Interval(mean, t * statistics.stdev(values) / math.sqrt(len(values)))


def paired(values: Sequence[float], baseline: Sequence[float]) -> Interval:
    """Returns the interval of the differences, seed by seed: both saw the same jobs."""
    return interval([each - other for each, other in zip(values, baseline, strict=True)])


def paired_change(values: Sequence[float], baseline: Sequence[float]) -> Interval | None:
    """Returns the interval of the relative differences (-0.3 is 30 % less); None where the baseline is zero."""
    if not all(baseline):
        return None
    return interval([each / other - 1 for each, other in zip(values, baseline, strict=True)])
