"""The metrics that a job has printed, as series for a chart. Pure.

Values are found as the controller finds them (docs/training-metrics.md). The steps are the horizontal axis if the
program prints them, else the numbers of the lines. Series have at most `MAX_POINTS` points, evenly chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfjob_controller.controller.logs.metricparser import MetricParser

MAX_POINTS = 1000
MAX_SERIES = 8
STEP = "step"


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """`values` has a list for each of `names`, as long as `positions`; None where a line has no finite value."""

    axis: str
    positions: Sequence[float]
    names: Sequence[str]
    values: Sequence[Sequence[float | None]]


def metric_history(lines: Iterable[str], names: Sequence[str]) -> MetricHistory:
    """The values of these metrics in the lines of a log, oldest first."""
    parser, points = MetricParser(names), list[dict[str, float]]()
    for line in lines:
        found = {name: float(each.value) for name, each in parser.feed(f"{line}\n".encode()).items()}
        if finite := {name: value for name, value in found.items() if math.isfinite(value)}:
            points.append(finite)
    shown = [name for name in names if name != STEP and any(name in point for point in points)][:MAX_SERIES]
    points = [point for point in points if not point.keys().isdisjoint(shown)]
    has_steps = bool(points) and all(STEP in point for point in points)
    if has_steps:  # a program that resumes from a checkpoint repeats steps: the last values count
        points = [by_step for _, by_step in sorted({point[STEP]: point for point in points}.items())]
    points = points[:: max(1, -(-len(points) // MAX_POINTS))]
    positions = [point[STEP] for point in points] if has_steps else [float(index) for index in range(len(points))]
    return MetricHistory(
        STEP if has_steps else "line", positions, shown, [[p.get(name) for p in points] for name in shown]
    )
