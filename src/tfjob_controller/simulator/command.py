"""`tfjob-controller simulate`: from flags to tables, JSON and plots. Progress and hints go to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.model import (
    BASELINE,
    POLICIES,
    SECOND,
    RandomWorkload,
    SimulationError,
    SimulationSettings,
    SpeedModel,
    read_trace,
)
from tfjob_controller.simulator.options import JSON, SimulateOptions
from tfjob_controller.simulator.simulation import (
    TIMES,
    CellResults,
    ExperimentCell,
    Interval,
    RunResult,
    grid,
    interval,
    paired,
    paired_change,
    run_experiment,
    tenants_of,
    workload_cell,
)
from tfjob_controller.util.commandline import install_hint
from tfjob_controller.util.terminal import print_line

# The width of tables without a terminal.
_WIDTH = 200


def run(options: SimulateOptions) -> int:
    """Simulates and prints the results. Raises SimulationError for what cannot be simulated."""
    draw = _plotter(options.plots)
    cells = _cells_of(options)
    first = options.first_seed
    seeds = range(first, first + (1 if options.trace else options.seeds))
    policies = [POLICIES[name] for name in options.policies]
    with _progress(len(cells) * len(policies) * len(seeds)) as done:
        found = run_experiment(cells, policies, seeds, _settings_of(options), processes=options.parallel, on_run=done)
    if options.output == JSON:
        json.dump([_cell(each, with_decisions=len(seeds) == 1) for each in found], sys.stdout, indent=1)
        print_line("")
    else:
        _print_tables(found)
    written = draw(found) if draw is not None else []
    _advise(options, written)
    return 0


def _cells_of(options: SimulateOptions) -> list[ExperimentCell]:
    shape = ClusterShape(options.nodes, options.gpus_per_node)
    if options.trace:
        return [ExperimentCell(Path(options.trace).stem, shape, trace=tuple(read_trace(options.trace, options.kind)))]
    workload = RandomWorkload(
        options.jobs,
        options.mean_arrival,
        options.job_workers,
        options.work_median,
        options.work_sigma,
        options.kind,
        options.shared,
    )
    return grid(workload) if options.grid else [workload_cell(shape, workload)]


def _settings_of(options: SimulateOptions) -> SimulationSettings:
    speed = SpeedModel(options.doubling_factor, options.spread_factor, options.restart)
    return SimulationSettings(
        speed=speed,
        resize=options.resize,
        starvation_timeout_seconds=options.starvation_timeout,
        scale_down_after_seconds=options.scale_down_after,
        scale_up_after_seconds=options.scale_up_after,
        pod_seconds=options.pod_interval,
        deadlock_timeout_seconds=options.deadlock_timeout,
        preempt_after_seconds=options.preempt_after,
        preemption_grace_seconds=options.preemption_grace,
        checkpoint_seconds=options.checkpoint_interval,
    )


def _plotter(folder: str) -> Callable[[Sequence[CellResults]], list[Path]] | None:
    """Called before anything is simulated, so that a missing library is reported at once."""
    if not folder:
        return None
    try:
        from tfjob_controller.simulator.plots import draw_all
    except ImportError as error:
        raise SimulationError(
            f"--plots needs matplotlib ({error}); {install_hint('simulate')}, or leave --plots out"
        ) from None
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SimulationError(f"cannot create the folder {folder}: {error}") from None
    return lambda found: draw_all(found, target)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _print_tables(found: Sequence[CellResults]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for findings in found:
        console.print(_heading_of(findings), highlight=False)
        console.print(_table_of(findings))
        if tenants := tenants_of(findings):
            console.print(_tenant_table(findings, tenants))
    if len(found) > 1:
        for measure in ("completion_mean", "waiting_mean", "elapsed_mean", "makespan", "allocated", "useful"):
            console.print(f"{measure.replace('_', ', ')}: change from default, 95 % of each", highlight=False)
            console.print(_summary_of(found, measure))


def _advise(options: SimulateOptions, written: Sequence[Path]) -> None:
    """Prints what could be done next."""
    if written:
        print_line(f"{len(written)} plots in {options.plots}, such as {written[0]}", sys.stderr)
    else:
        print_line("--plots=FOLDER draws the GPUs of each job over time", sys.stderr)
    if options.output != JSON:
        print_line("-o json has every number, and with --seeds=1 or --trace every start and resize", sys.stderr)
    print_line("docs/simulator.md explains the results", sys.stderr)


_PLUS_MINUS = "\u00b1"


def _heading_of(findings: CellResults) -> str:
    """Returns the line above the cell's table."""
    runs = len(next(iter(findings.by_policy.values())))
    return (
        f"{findings.cell.name}: {findings.cell.shape.gpus} GPUs, {runs} run{'s' if runs > 1 else ''} of each; seconds"
    )


def _table_of(findings: CellResults) -> Table:
    """Returns the table of one cell: means over seeds, with 95 % confidence intervals."""
    table = Table()
    table.add_column("policy", no_wrap=True)
    for name in TIMES:
        table.add_column(f"{name}: mean, median, P95", justify="right", no_wrap=True)
    for name in ("makespan", "allocated", "useful", "resizes", "restarts", "deadlock", "completion vs default"):
        table.add_column(name, justify="right")
    for policy in findings.by_policy:
        table.add_row(policy, *_row(findings, policy))
    return table


def _tenant_table(findings: CellResults, tenants: Sequence[str]) -> Table:
    """Returns the table of what each tenant gets, and of what preemption costs."""
    table = Table()
    table.add_column("policy", no_wrap=True)
    for tenant in tenants:
        table.add_column(f"{tenant}: waiting mean, P95; completion", justify="right")
    for name in ("preemptions", "wasted"):
        table.add_column(name, justify="right")
    for policy in findings.by_policy:
        table.add_row(policy, *_tenant_row(findings, policy, tenants))
    return table


def _tenant_row(findings: CellResults, policy: str, tenants: Sequence[str]) -> Iterable[str]:
    def of(measure: str) -> Interval:
        return interval(findings.values(policy, measure))

    for tenant in tenants:
        waiting, late = _number(of(f"waiting_mean of {tenant}")), of(f"waiting_p95 of {tenant}").mean
        yield f"{waiting}, {late:.0f}; {_number(of(f'completion_mean of {tenant}'))}"
    yield f"{of('preemptions').mean:.0f}"
    yield f"{of('wasted').mean:.1%}"


def _row(findings: CellResults, policy: str) -> Iterable[str]:
    def of(measure: str) -> Interval:
        return interval(findings.values(policy, measure))

    for name in TIMES:
        yield f"{_number(of(f'{name}_mean'))}, {of(f'{name}_median').mean:.0f}, {of(f'{name}_p95').mean:.0f}"
    yield _number(of("makespan"))
    yield from (f"{of(name).mean:.1%}" for name in ("allocated", "useful"))
    yield from (f"{of(name).mean:.0f}" for name in ("resizes", "restarts", "deadlock"))
    yield _change(_change_of(findings, policy, "completion_mean"))


def _summary_of(many: Sequence[CellResults], measure: str) -> Table:
    """Returns the table of several cells: how much a measure differs from the baseline, in percent."""
    table = Table()
    table.add_column("cluster, arrivals", no_wrap=True)
    policies = [name for name in many[0].by_policy if name != BASELINE]
    for policy in policies:
        table.add_column(policy, justify="right")
    for findings in many:
        changes = (_change(_change_of(findings, policy, measure)) for policy in policies)
        table.add_row(findings.cell.name, *changes)
    return table


def _change_of(findings: CellResults, policy: str, measure: str) -> Interval | None:
    if policy == BASELINE or BASELINE not in findings.by_policy:
        return None
    return paired_change(findings.values(policy, measure), findings.values(BASELINE, measure))


def _number(found: Interval) -> str:
    return f"{found.mean:.0f}" + ("" if found.half is None else f" {_PLUS_MINUS}{found.half:.0f}")


def _change(found: Interval | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:+.1%}" + ("" if found.half is None else f" {_PLUS_MINUS}{found.half * 100:.1f}")


def _cell(findings: CellResults, *, with_decisions: bool) -> dict[str, Any]:
    """Returns the JSON of one cell; numbers are not rounded."""
    shape = findings.cell.shape
    return {
        "name": findings.cell.name,
        "nodes": shape.nodes,
        "gpusPerNode": shape.gpus_per_node,
        "policies": {
            policy: _policy(findings, policy, results[0] if with_decisions else None)
            for policy, results in findings.by_policy.items()
        },
    }


def _policy(findings: CellResults, policy: str, first: RunResult | None) -> dict[str, Any]:
    names = list(findings.by_policy[policy][0].measures)
    summary: dict[str, Any] = {name: _interval(interval(findings.values(policy, name))) for name in names}
    if policy != BASELINE and BASELINE in findings.by_policy:
        differences = {
            name: _interval(paired(findings.values(policy, name), findings.values(BASELINE, name))) for name in names
        }
        changes = {name: _change_of(findings, policy, name) for name in names}
        summary["differenceFromDefault"] = differences
        # A share of the default; nothing where that is zero.
        summary["changeFromDefault"] = {name: _interval(each) for name, each in changes.items() if each is not None}
    if first is not None and first.ledger is not None:
        summary["decisions"] = [
            {
                "seconds": entry.moment_ms / SECOND,
                "what": entry.what,
                "job": entry.job,
                "workers": entry.workers,
                "nodes": list(entry.nodes),
                "reason": entry.reason,
            }
            for entry in first.ledger.entries
        ]
    return summary


def _interval(found: Interval) -> Mapping[str, float | None]:
    return {"mean": found.mean, "ci95": found.half}
