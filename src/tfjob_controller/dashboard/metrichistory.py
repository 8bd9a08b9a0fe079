"""The metrics of a job as series for charts: those in its log, and those that its program reports.

Values in a log are found as the controller finds them (docs/training-metrics.md). The steps are the horizontal axis if
the program gives them, else the numbers of the lines or reports. A series has at most `MAX_POINTS` points.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfjob_controller.controller.logs.metricparser import MetricParser

MAX_POINTS = 1000
MAX_SERIES = 8
MAX_REPORTS = 500
STEP, LINE, REPORT = "step", "line", "report"
_Point = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One chart: a finite value for each position, which ascend."""

    name: str
    axis: str
    positions: Sequence[float]
    values: Sequence[float]


def logged_series(lines: Iterable[str], names: Sequence[str]) -> list[MetricSeries]:
    """The series of these metrics in the lines of a log, oldest first."""
    parser = MetricParser(names)
    points = (
        {name: float(metric.value) for name, metric in parser.feed(f"{line}\n".encode()).items()} for line in lines
    )
    return _series([finite for point in points if (finite := finite_values(point))], names, LINE)


class ReportedMetrics:
    """The metrics in a job's status, as they were while the job was watched. Thread-safe.

    The first `MAX_SERIES` names count. When there are more than `MAX_REPORTS` points, every second one is dropped, so
    that the series keeps its beginning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {STEP: STEP}
        self._points: list[_Point] = []

    def record(self, values: Mapping[str, float]) -> None:
        """Adds a point, unless it is equal to the last one."""
        with self._lock:
            for name in values:
                if len(self._names) <= MAX_SERIES:
                    self._names.setdefault(name, name)
            known = {self._names[name]: value for name, value in values.items() if name in self._names}
            point = finite_values(known)
            if not point or (self._points and self._points[-1] == point):
                return
            self._points.append(point)
            if len(self._points) > MAX_REPORTS:
                del self._points[1::2]

    def series(self) -> list[MetricSeries]:
        with self._lock:
            points = list(self._points)
        names = dict.fromkeys(name for point in points for name in point)
        return _series(points, list(names), REPORT)


def charts(logged: Sequence[MetricSeries], reported: Sequence[MetricSeries]) -> list[MetricSeries]:
    """All series of a job: those of its log, which reach further back, and the reported ones of other metrics."""
    names = {series.name for series in logged}
    return [*logged, *(series for series in reported if series.name not in names)][:MAX_SERIES]


def finite_values(values: _Point) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _series(points: Sequence[_Point], names: Sequence[str], axis: str) -> list[MetricSeries]:
    shown = [name for name in names if name != STEP and any(name in point for point in points)][:MAX_SERIES]
    points = [point for point in points if not point.keys().isdisjoint(shown)]
    has_steps = bool(points) and all(STEP in point for point in points)
    if has_steps:  # a program that resumes from a checkpoint repeats steps: the last values count
        points = [by_step for _, by_step in sorted({point[STEP]: point for point in points}.items())]
    positions = [point[STEP] if has_steps else float(index) for index, point in enumerate(points)]
    return [_one(name, STEP if has_steps else axis, positions, points) for name in shown]


def _one(name: str, axis: str, positions: Sequence[float], points: Sequence[_Point]) -> MetricSeries:
    values = [(position, point[name]) for position, point in zip(positions, points, strict=True) if name in point]
    values = values[:: max(1, -(-len(values) // MAX_POINTS))]
    return MetricSeries(name, axis, [position for position, _ in values], [value for _, value in values])
