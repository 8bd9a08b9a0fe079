"""Many runs: every policy on the same jobs, seed by seed, over as many processes as there are cores.

Results do not depend on the number of processes, nor on who is done first.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.jobs import SimJob
from tfjob_controller.simulator.ledger import Entry, Level, Segment
from tfjob_controller.simulator.measures import TIMES, measures
from tfjob_controller.simulator.policy import Policy, Settings
from tfjob_controller.simulator.run import Run, simulate
from tfjob_controller.simulator.workload import MEAN_ARRIVALS, Workload

GRID_SHAPES = (ClusterShape(2, 4), ClusterShape(4, 4), ClusterShape(8, 4))


@dataclass(frozen=True, slots=True)
class Cell:
    """One cluster and one kind of workload; or the jobs of a trace, which chance does not change."""

    name: str
    shape: ClusterShape
    workload: Workload = field(default_factory=Workload)
    trace: tuple[SimJob, ...] = ()

    def jobs(self, seed: int) -> Sequence[SimJob]:
        return self.trace or self.workload.generate(seed)


@dataclass(frozen=True, slots=True)
class Task:
    """One run. `detailed`: its picture is wanted too."""

    cell: Cell
    policy: Policy
    seed: int
    settings: Settings
    detailed: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What happened in one run."""

    entries: tuple[Entry, ...] = ()
    segments: tuple[Segment, ...] = ()
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """`times` are those of all jobs, by name (`waiting` and so on)."""

    measures: Mapping[str, float]
    times: Mapping[str, tuple[float, ...]]
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one cell: the results of each policy, one for each seed, in the order of the seeds."""

    cell: Cell
    by_policy: Mapping[str, Sequence[Result]]

    def values(self, policy: str, measure: str) -> list[float]:
        return [each.measures[measure] for each in self.by_policy[policy]]

    def times(self, policy: str, name: str) -> list[float]:
        """Of all jobs of all seeds."""
        return [value for each in self.by_policy[policy] for value in each.times[name]]


def grid(workload: Workload) -> list[Cell]:
    """All clusters with all mean arrivals (docs/autoscaling.md), with all else as given."""
    return [workload_cell(shape, _arriving(workload, mean)) for shape in GRID_SHAPES for mean in MEAN_ARRIVALS]


def workload_cell(shape: ClusterShape, workload: Workload) -> Cell:
    return Cell(f"{shape}-{workload.mean_arrival_seconds:g}s", shape, workload)


def _arriving(workload: Workload, mean: float) -> Workload:
    return Workload(workload.jobs, mean, workload.workers, workload.work_median, workload.work_sigma)


def run_task(task: Task) -> Result:
    """In whatever process."""
    run = simulate(task.cell.jobs(task.seed), task.cell.shape, task.policy, task.settings, detailed=task.detailed)
    times = {name: tuple(map(of, run.outcomes)) for name, of in TIMES.items()}
    return Result(measures(run), times, _picture(run) if task.detailed else None)


def _picture(run: Run) -> Picture:
    return Picture(tuple(run.ledger.entries), tuple(run.ledger.segments), tuple(run.ledger.levels))


def explore(
    cells: Sequence[Cell],
    policies: Sequence[Policy],
    seeds: Sequence[int],
    settings: Settings,
    *,
    processes: int,
    done: Callable[[], None] = lambda: None,
) -> list[Findings]:
    """All of them; pictures of the first seed only. `done` is called after each run."""
    tasks = [
        Task(cell, policy, seed, settings, detailed=seed == seeds[0])
        for cell in cells
        for policy in policies
        for seed in seeds
    ]
    results = dict(_results(tasks, processes, done))
    # One after another, as they were made.
    rest = iter(results[index] for index in range(len(tasks)))
    return [Findings(cell, {policy.name: [next(rest) for _ in seeds] for policy in policies}) for cell in cells]


def _results(tasks: Sequence[Task], processes: int, done: Callable[[], None]) -> Iterator[tuple[int, Result]]:
    if processes == 1 or len(tasks) == 1:
        for index, task in enumerate(tasks):
            yield index, run_task(task)
            done()
        return
    # Not forked: a process with threads (a progress bar has one) should not be.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_task, task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                done()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
