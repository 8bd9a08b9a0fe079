"""Plots of the simulator's results, as PNG and SVG. The only module of the simulator that needs matplotlib.

A cell is a cluster with a workload, simulated under several policies and with several seeds. Each cell has plots of its
GPUs over time and, up to a number of GPUs, of which job ran where (both of the first seed), of the distributions of
waiting and completion times, and of the waiting times of tenants if there are several (all seeds). One more plot
compares the cells with the baseline. Equal results give equal files: they contain no date, and the identifiers in them
are fixed.

Importing this module changes settings of matplotlib for the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.execution import PARTIAL, PAUSED, Ledger, Segment
from tfjob_controller.simulator.model import BASELINE, SECOND
from tfjob_controller.simulator.simulation import CellResults, interval, paired_change, tenants_of

mpl.rcParams["svg.hashsalt"] = "tfjob-controller"
mpl.rcParams["font.size"] = 8

_MINUTE = 60 * SECOND
# More GPUs than this cannot be told apart in a plot.
_MAX_GPUS_TOLD_APART = 256
_HELD_COLOUR, _PAUSED_COLOUR = "#c9c9c9", "#000000"
_COLOURS = mpl.colormaps["tab20"]
# Without the greys of tab20, which mean held.
_JOB_COLOURS = [_COLOURS(index) for index in range(20) if index not in (14, 15)]


def draw_all(cells: Sequence[CellResults], folder: Path) -> list[Path]:
    """Writes all plots to the folder, which exists; returns the files in the order in which they were written."""
    written: list[Path] = []
    for results in cells:
        for name, figure in _figures(results):
            written += _save(figure, folder / f"{results.cell.name}-{name}")
    if len(cells) > 1 and BASELINE in cells[0].by_policy:
        written += _save(_grid(cells), folder / "grid")
    return written


def _figures(results: CellResults) -> Iterator[tuple[str, Figure]]:
    yield "times", _distributions(results)
    if tenants := tenants_of(results):
        yield "tenants", _tenants(results, tenants)
    shape = results.cell.shape
    # Only the run with the first seed has a ledger.
    ledgers = {name: ledger for name, runs in results.by_policy.items() if (ledger := runs[0].ledger) is not None}
    title = "GPUs: held (grey), by jobs that work (blue), useful (line)"
    yield "utilisation", _by_policy(ledgers, title, 1.2 * len(ledgers) + 0.6, shape, _draw_utilisation)
    if shape.gpus <= _MAX_GPUS_TOLD_APART:
        title = "A colour for each job, a line for each GPU; grey: held by a job that lacks pods; black: (re)starts"
        height = min(max(0.05 * shape.gpus, 1.0) * len(ledgers) + 0.8, 60.0)
        yield "gantt", _by_policy(ledgers, title, height, shape, _draw_gantt)


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.parent / f"{stem.name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    return paths


def _figure(rows: int, columns: int, height: float, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9, height), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


# Tenants of a shared cluster


def _tenants(results: CellResults, tenants: Sequence[str]) -> Figure:
    figure, (axis,) = _figure(1, 1, 3.0, "Mean waiting time by tenant, 95 % confidence intervals over seeds")
    for number, policy in enumerate(results.by_policy):
        intervals = [interval(results.values(policy, f"waiting_mean of {tenant}")) for tenant in tenants]
        places = [index + (number - len(results.by_policy) / 2) * 0.12 for index in range(len(tenants))]
        halves = [each.half or 0.0 for each in intervals]
        axis.errorbar(places, [each.mean for each in intervals], yerr=halves, fmt="o", markersize=3, label=policy)
    axis.set_yscale("symlog", linthresh=10)
    axis.set_ylabel("seconds")
    axis.set_xticks(range(len(tenants)), tenants)
    axis.grid(alpha=0.3, axis="y")
    axis.legend(fontsize=7, ncols=2)
    return figure


# Distributions of times


def _distributions(results: CellResults) -> Figure:
    figure, axes = _figure(1, 2, 3.2, f"{results.cell.name}: share of jobs that took no longer, all seeds")
    for axis, name in zip(axes, ("waiting", "completion"), strict=True):
        for policy in results.by_policy:
            minutes = sorted(value / 60 for value in results.times(policy, name))
            shares = [(index + 1) / len(minutes) for index in range(len(minutes))]
            axis.step(minutes, shares, where="post", label=policy, linewidth=1)
        axis.set_xlabel(f"{name} time [min]")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[-1].legend(loc="lower right")
    return figure


# GPUs and jobs over time, for each policy


def _by_policy(
    ledgers: Mapping[str, Ledger],
    title: str,
    height: float,
    shape: ClusterShape,
    draw: Callable[[Axes, Ledger, ClusterShape], None],
) -> Figure:
    figure, axes = _figure(len(ledgers), 1, height, title)
    longest = max(max((segment.end_ms for segment in ledger.segments), default=0) for ledger in ledgers.values())
    for axis, (policy, ledger) in zip(axes, ledgers.items(), strict=True):
        draw(axis, ledger, shape)
        axis.set_xlim(0, longest / _MINUTE)
        axis.set_title(policy, loc="left", fontsize=8)
    axes[-1].set_xlabel("minutes")
    return figure


def _draw_utilisation(axis: Axes, ledger: Ledger, shape: ClusterShape) -> None:
    minutes = [level.moment_ms / _MINUTE for level in ledger.levels]
    held, working = [level.held for level in ledger.levels], [level.working for level in ledger.levels]
    for values, colour in ((held, _HELD_COLOUR), (working, "#9ecae1")):
        axis.fill_between(minutes, values, step="post", color=colour, linewidth=0)
    axis.step(minutes, [level.useful for level in ledger.levels], where="post", color="#08519c", linewidth=0.8)
    axis.set_ylim(0, shape.gpus)


def _draw_gantt(axis: Axes, ledger: Ledger, shape: ClusterShape) -> None:
    names = shape.node_names()
    first_lane = {name: index * shape.gpus_per_node for index, name in enumerate(names)}
    boxes: list[Rectangle] = []
    colours: list[object] = []
    numbers: dict[str, int] = {}
    for segment, lane, lanes in _boxes(ledger.segments, shape.gpus_per_node):
        start, width = segment.start_ms / _MINUTE, (segment.end_ms - segment.start_ms) / _MINUTE
        boxes.append(Rectangle((start, first_lane[segment.node] + lane), width, lanes))
        number = numbers.setdefault(segment.job, len(numbers))
        colours.append(_colour(segment.state, number))
    axis.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors="none"))
    for name in names[1:]:
        axis.axhline(first_lane[name], color="white", linewidth=1)
    axis.set_ylim(shape.gpus, 0)
    axis.set_yticks([first_lane[name] + shape.gpus_per_node / 2 for name in names], names, fontsize=6)


def _colour(state: str, number: int) -> object:
    if state == PARTIAL:
        return _HELD_COLOUR
    return _PAUSED_COLOUR if state == PAUSED else _JOB_COLOURS[number % len(_JOB_COLOURS)]


def _boxes(segments: Iterable[Segment], per_node: int) -> Iterator[tuple[Segment, int, int]]:
    """Yields the boxes of each segment: the segment, its first GPU on the node, and the number of adjacent GPUs."""
    for segment, lanes in _lanes(segments, per_node):
        for first in lanes:
            if first - 1 not in lanes:
                last = next(lane for lane in range(first, per_node + 1) if lane not in lanes)
                yield segment, first, last - first


def _lanes(segments: Iterable[Segment], per_node: int) -> Iterator[tuple[Segment, list[int]]]:
    """Yields each segment with the numbers of the GPUs on its node that it occupies, by start.

    They are the free ones, preferably those that the job had before. A lane of the plot is a GPU.
    """
    free_at: dict[str, list[int]] = {}
    last: dict[tuple[str, str], list[int]] = {}
    for segment in sorted(segments, key=lambda segment: (segment.start_ms, segment.job, segment.node)):
        ends = free_at.setdefault(segment.node, [0] * per_node)
        before = last.get((segment.job, segment.node), [])
        free = [lane for lane in range(per_node) if ends[lane] <= segment.start_ms]
        free.sort(key=lambda lane: (lane not in before, lane))
        taken = free[: segment.gpus]
        last[segment.job, segment.node] = taken
        for lane in taken:
            ends[lane] = segment.end_ms
        yield segment, taken


# The whole grid


def _grid(cells: Sequence[CellResults]) -> Figure:
    figure, axes = _figure(2, 1, 6.0, "Change from default Kubernetes: means and 95 % confidence intervals over seeds")
    policies = [name for name in cells[0].by_policy if name != BASELINE]
    measures = (("completion_mean", "mean completion time"), ("useful", "useful utilisation"))
    for axis, (measure, label) in zip(axes, measures, strict=True):
        for number, policy in enumerate(policies):
            changes = [paired_change(cell.values(policy, measure), cell.values(BASELINE, measure)) for cell in cells]
            places = [index + (number - len(policies) / 2) * 0.14 for index in range(len(cells))]
            means = [100 * change.mean if change else 0.0 for change in changes]
            halves = [100 * (change.half or 0.0) if change else 0.0 for change in changes]
            axis.errorbar(places, means, yerr=halves, fmt="o", markersize=3, linewidth=1, label=policy)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_ylabel(f"{label} [%]")
        axis.set_xticks(range(len(cells)), [results.cell.name for results in cells], rotation=30)
        axis.grid(alpha=0.3, axis="y")
    axes[0].legend(fontsize=7, ncols=3)
    return figure
