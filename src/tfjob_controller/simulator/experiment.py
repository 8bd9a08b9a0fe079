"""Many runs: every policy on the same jobs, seed by seed, on as many processes as there are cores; and their
statistics.

Results do not depend on the number of processes, nor on which run ends first. Means over seeds have Student's 95 %
confidence intervals.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.execution import LedgerEntry, Segment, UsageLevel
from tfjob_controller.simulator.jobs import MEAN_ARRIVALS, RandomWorkload, SimJob
from tfjob_controller.simulator.policies import SchedulingPolicy, SimulationSettings
from tfjob_controller.simulator.simulation import TIMES, SimulationRun, measures, simulate

GRID_SHAPES = (ClusterShape(2, 4), ClusterShape(4, 4), ClusterShape(8, 4))


@dataclass(frozen=True, slots=True)
class ExperimentCell:
    """One cluster and one kind of workload; or the jobs of a trace, which no seed changes."""

    name: str
    shape: ClusterShape
    workload: RandomWorkload = field(default_factory=RandomWorkload)
    trace: tuple[SimJob, ...] = ()

    def jobs(self, seed: int) -> Sequence[SimJob]:
        return self.trace or self.workload.generate(seed)


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """One run. `detailed`: with its details."""

    cell: ExperimentCell
    policy: SchedulingPolicy
    seed: int
    settings: SimulationSettings
    detailed: bool = False


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What happened in one run."""

    entries: tuple[LedgerEntry, ...] = ()
    segments: tuple[Segment, ...] = ()
    levels: tuple[UsageLevel, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """`times` are those of all jobs, by name (`waiting` and so on)."""

    measures: Mapping[str, float]
    times: Mapping[str, tuple[float, ...]]
    details: RunDetails | None = None


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
    """Returns all clusters with all mean arrivals of docs/autoscaling.md, with everything else as given."""
    return [
        workload_cell(shape, replace(workload, mean_arrival_seconds=mean))
        for shape in GRID_SHAPES
        for mean in MEAN_ARRIVALS
    ]


def workload_cell(shape: ClusterShape, workload: RandomWorkload) -> ExperimentCell:
    return ExperimentCell(f"{shape}-{workload.mean_arrival_seconds:g}s", shape, workload)


def run_task(task: SimulationTask) -> RunResult:
    """Runs in any process."""
    run = simulate(task.cell.jobs(task.seed), task.cell.shape, task.policy, task.settings, detailed=task.detailed)
    times = {name: tuple(map(of, run.outcomes)) for name, of in TIMES.items()}
    return RunResult(measures(run), times, _details(run) if task.detailed else None)


def _details(run: SimulationRun) -> RunDetails:
    return RunDetails(tuple(run.ledger.entries), tuple(run.ledger.segments), tuple(run.ledger.levels))


def run_experiment(
    cells: Sequence[ExperimentCell],
    policies: Sequence[SchedulingPolicy],
    seeds: Sequence[int],
    settings: SimulationSettings,
    *,
    processes: int,
    on_run: Callable[[], None] = lambda: None,
) -> list[CellResults]:
    """Runs everything; details of the first seed only. Calls `on_run` after each run."""
    tasks = [
        SimulationTask(cell, policy, seed, settings, detailed=seed == seeds[0])
        for cell in cells
        for policy in policies
        for seed in seeds
    ]
    results = dict(_results(tasks, processes, on_run))
    # In the order of the tasks.
    rest = iter(results[index] for index in range(len(tasks)))
    return [CellResults(cell, {policy.name: [next(rest) for _ in seeds] for policy in policies}) for cell in cells]


def _results(
    tasks: Sequence[SimulationTask], processes: int, on_run: Callable[[], None]
) -> Iterator[tuple[int, RunResult]]:
    if processes == 1 or len(tasks) == 1:
        for index, task in enumerate(tasks):
            yield index, run_task(task)
            on_run()
        return
    # Spawned, not forked: this process has threads (the progress bar's).
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_task, task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                on_run()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
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
    """Returns that of the relative differences (-0.3 is 30 % less); None where the baseline is zero."""
    if not all(baseline):
        return None
    return interval([each / other - 1 for each, other in zip(values, baseline, strict=True)])
