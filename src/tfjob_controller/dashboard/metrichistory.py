"""The metrics of a job as series for charts: those in its log, and those that its program reports.

Values in a log are found as the controller finds them (docs/training-metrics.md). The steps are the horizontal axis if
the program gives them, else the numbers of the lines or reports. A series has at most `MAX_POINTS` points, and all
together `MAX_ALL_POINTS`, because an open page reads them every few seconds.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfjob_controller.api.common.status import MAX_METRICS
from tfjob_controller.controller.logs.metricparser import MetricParser

MAX_POINTS, MAX_ALL_POINTS = 1000, 8000
MAX_SERIES = MAX_METRICS
MAX_REPORTS = 500
STEP, LINE, REPORT = "step", "line", "report"


class _Point(NamedTuple):
    """The values of one line or report, and its seconds since 1970; None if it has no time."""

    values: Mapping[str, float]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One chart: a finite value for each position, which ascend.

    `times` are the seconds since 1970 of the values; empty unless all are known.
    """

    name: str
    axis: str
    positions: Sequence[float]
    values: Sequence[float]
    times: Sequence[float] = ()


def logged_series(lines: Iterable[str], names: Sequence[str]) -> list[MetricSeries]:
    """The series of these metrics in the lines of a log, oldest first; lines may begin with their times."""
    parser = MetricParser(names)
    points = []
    for line in lines:
        found = parser.feed(f"{line}\n".encode())
        if values := finite_values({name: float(metric.value) for name, metric in found.items()}):
            moments = (metric.logged_at for metric in found.values() if metric.logged_at is not None)
            moment = max(moments, default=None)
            points.append(_Point(values, None if moment is None else round(moment.timestamp(), 1)))
    return _series(points, names, LINE)


class ReportedMetrics:
    """The metrics in a job's status, as they were while the job was watched. Thread-safe.

    The first `MAX_SERIES` names count. When there are more than `MAX_REPORTS` points, every second one is dropped, so
    that the series keeps its beginning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {STEP: STEP}
        self._points: list[_Point] = []

    def record(self, values: Mapping[str, float], at: float | None = None) -> None:
        """Adds a point, unless its values are those of the last one. `at`: its seconds since 1970."""
        with self._lock:
            for name in values:
                if len(self._names) <= MAX_SERIES:
                    self._names.setdefault(name, name)
            known = {self._names[name]: value for name, value in values.items() if name in self._names}
            finite = finite_values(known)
            if not finite or (self._points and self._points[-1].values == finite):
                return
            self._points.append(_Point(finite, at))
            if len(self._points) > MAX_REPORTS:
                del self._points[1::2]

    def series(self) -> list[MetricSeries]:
        with self._lock:
            points = list(self._points)
        names = dict.fromkeys(name for point in points for name in point.values)
        return _series(points, list(names), REPORT)


def charts(logged: Sequence[MetricSeries], reported: Sequence[MetricSeries]) -> list[MetricSeries]:
    """All series of a job: those of its log, which reach further back, and the reported ones of other metrics."""
    names = {series.name for series in logged}
    return [*logged, *(series for series in reported if series.name not in names)][:MAX_SERIES]


def finite_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _series(points: Sequence[_Point], names: Sequence[str], axis: str) -> list[MetricSeries]:
    known = {name for point in points for name in point.values}
    shown = [name for name in names if name != STEP and name in known][:MAX_SERIES]
    points = [point for point in points if not point.values.keys().isdisjoint(shown)]
    has_steps = bool(points) and all(STEP in point.values for point in points)
    if has_steps:  # a program that resumes from a checkpoint repeats steps: the last values count
        points = [by_step for _, by_step in sorted({point.values[STEP]: point for point in points}.items())]
    positions = [point.values[STEP] if has_steps else float(index) for index, point in enumerate(points)]
    most = min(MAX_POINTS, MAX_ALL_POINTS // max(1, len(shown)))
    return [_one(name, STEP if has_steps else axis, positions, points, most) for name in shown]


def _one(name: str, axis: str, positions: Sequence[float], points: Sequence[_Point], most: int) -> MetricSeries:
    values = [
        (position, point.values[name], point.at)
        for position, point in zip(positions, points, strict=True)
        if name in point.values
    ]
    thinned = values[:: max(1, -(-len(values) // most))]
    if thinned and thinned[-1] != values[-1]:  # the newest value is the one that people look for
        thinned[-1] = values[-1]
    times = [at for _, _, at in thinned if at is not None]
    return MetricSeries(
        name,
        axis,
        [position for position, _, _ in thinned],
        [value for _, value, _ in thinned],
        times if len(times) == len(thinned) else (),
    )
