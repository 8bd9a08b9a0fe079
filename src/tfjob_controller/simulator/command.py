"""`tfjob-controller simulate`: from flags to tables, JSON and plots. Progress and advice go to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.experiment import Cell, Findings, explore, grid, workload_cell
from tfjob_controller.simulator.jobs import SimulationError, SpeedModel
from tfjob_controller.simulator.options import JSON, SimulateOptions
from tfjob_controller.simulator.policy import POLICIES, Settings
from tfjob_controller.simulator.reporting import as_json, heading_of, summary_of, table_of
from tfjob_controller.simulator.trace import read_trace
from tfjob_controller.simulator.workload import Workload

# Wide enough for a table where there is no terminal.
_WIDTH = 200


def run(options: SimulateOptions) -> int:
    """Simulate, and say what was found. Raises SimulationError for what cannot be simulated."""
    draw = _plotter(options.plots)
    cells = cells_of(options)
    seeds = [options.first_seed] if options.trace else _seeds(options)
    policies = [POLICIES[name] for name in options.policies]
    with _progress("simulating", len(cells) * len(policies) * len(seeds)) as done:
        found = explore(cells, policies, seeds, settings_of(options), processes=options.parallel, done=done)
    if options.output == JSON:
        json.dump(as_json(found, with_decisions=len(seeds) == 1), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        _print_tables(found)
    written = draw(found) if draw is not None else []
    _advise(options, written)
    return 0


def cells_of(options: SimulateOptions) -> list[Cell]:
    """What is to be simulated."""
    shape = ClusterShape(options.nodes, options.gpus_per_node)
    if options.trace:
        return [Cell(Path(options.trace).stem, shape, trace=tuple(read_trace(options.trace)))]
    workload = Workload(
        options.jobs, options.mean_arrival, options.job_workers, options.work_median, options.work_sigma
    )
    return grid(workload) if options.grid else [workload_cell(shape, workload)]


def settings_of(options: SimulateOptions) -> Settings:
    speed = SpeedModel(options.doubling_factor, options.spread_factor, options.restart)
    return Settings(
        speed=speed,
        resize=options.resize,
        starvation_timeout_seconds=options.starvation_timeout,
        scale_down_after_seconds=options.scale_down_after,
        scale_up_after_seconds=options.scale_up_after,
        pod_seconds=options.pod_interval,
        deadlock_timeout_seconds=options.deadlock_timeout,
    )


def _seeds(options: SimulateOptions) -> list[int]:
    return list(range(options.first_seed, options.first_seed + options.seeds))


def _plotter(folder: str) -> Callable[[Sequence[Findings]], list[Path]] | None:
    """Asked for before anything is simulated: what cannot be drawn is said at once."""
    if not folder:
        return None
    try:
        from tfjob_controller.simulator.plots import draw_all
    except ImportError as error:
        raise SimulationError(
            f"--plots needs matplotlib ({error}): pip install 'tfjob-controller[simulate]', or leave --plots out"
        ) from None
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SimulationError(f"cannot make the folder {folder}: {error}") from None
    return lambda found: draw_all(found, target)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _print_tables(found: Sequence[Findings]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for findings in found:
        console.print(heading_of(findings), highlight=False)
        console.print(table_of(findings))
    if len(found) > 1:
        for measure in ("completion_mean", "waiting_mean", "elapsed_mean", "makespan", "allocated", "useful"):
            console.print(f"{measure.replace('_', ', ')}: change from default, 95 % of each", highlight=False)
            console.print(summary_of(found, measure))


def _advise(options: SimulateOptions, written: Sequence[Path]) -> None:
    """What one could do next."""
    if written:
        print(f"{len(written)} plots in {options.plots}, such as {written[0]}", file=sys.stderr)
    else:
        print("--plots=FOLDER draws who ran where and when", file=sys.stderr)
    if options.output != JSON:
        print("-o json has every number, and with --seeds=1 or --trace every start and resize", file=sys.stderr)
    print("what it means: docs/autoscaling.md", file=sys.stderr)
