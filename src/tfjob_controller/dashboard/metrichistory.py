"""The metrics of a job as series for charts: those in its log, and those that its program reports.

Values in a log are found as the controller finds them (docs/training-metrics.md). The steps are the horizontal axis if
the program gives them, else the numbers of the lines or reports. A series has at most `MAX_POINTS` points, and all
together `MAX_ALL_POINTS`, because an open page reads them every few seconds. A longer one keeps the least and the
greatest values of equal parts, so that no spike vanishes.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
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


class SeriesValue(NamedTuple):
    """One value of a series, and its seconds since 1970 if they are known."""

    value: float
    position: float
    at: float | None = None


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One chart: a finite value for each position, which ascend.

    `times` are the seconds since 1970 of the values; empty unless all are known. `count`, `least` and `greatest` are
    those of all finite values, of which a long series has only some. `last` is "nan", "inf" or "-inf" if the newest
    value is not finite; there may be no other values.
    """

    name: str
    axis: str
    positions: Sequence[float]
    values: Sequence[float]
    times: Sequence[float] = ()
    count: int = 0
    last: float | str = ""
    least: SeriesValue | None = None
    greatest: SeriesValue | None = None


def logged_series(lines: Iterable[str], names: Sequence[str]) -> list[MetricSeries]:
    """The series of these metrics in the lines of a log, oldest first; lines may begin with their times."""
    parser = MetricParser(names)
    points, newest = [], {}
    for line in lines:
        found = parser.feed(f"{line}\n".encode())
        known = {name: float(metric.value) for name, metric in found.items()}
        newest.update(known)
        if values := finite_values(known):
            moments = (metric.logged_at for metric in found.values() if metric.logged_at is not None)
            moment = max(moments, default=None)
            points.append(_Point(values, None if moment is None else round(moment.timestamp(), 1)))
    return _series(points, names, LINE, newest)


class ReportedMetrics:
    """The metrics in a job's status, as they were while the job was watched. Thread-safe.

    The first `MAX_SERIES` names count. When there are more than `MAX_REPORTS` points, every second one is dropped, so
    that the series keeps its beginning, except for the least and the greatest value of a metric.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {STEP: STEP}
        self._points: list[_Point] = []
        self._newest: dict[str, float] = {}
        self._dropped: Counter[str] = Counter()

    def record(self, values: Mapping[str, float], at: float | None = None) -> None:
        """Adds a point, unless its values are those of the last one. `at`: its seconds since 1970."""
        with self._lock:
            for name in values:
                if len(self._names) <= MAX_SERIES:
                    self._names.setdefault(name, name)
            known = {self._names[name]: value for name, value in values.items() if name in self._names}
            self._newest.update(known)
            finite = finite_values(known)
            if not finite or (self._points and self._points[-1].values == finite):
                return
            self._points.append(_Point(finite, at))
            if len(self._points) > MAX_REPORTS:
                self._thin()

    def _thin(self) -> None:
        kept = set(range(0, len(self._points), 2))
        for name in self._newest:
            known = [index for index, point in enumerate(self._points) if name in point.values]
            if known:
                kept |= {choose(known, key=lambda index: self._points[index].values[name]) for choose in (min, max)}
        for index, point in enumerate(self._points):
            if index not in kept:
                self._dropped.update(point.values.keys())
        self._points = [self._points[index] for index in sorted(kept)]

    def series(self) -> list[MetricSeries]:
        with self._lock:
            points, newest, dropped = list(self._points), dict(self._newest), dict(self._dropped)
        return _series(points, list(newest), REPORT, newest, dropped)


def charts(logged: Sequence[MetricSeries], reported: Sequence[MetricSeries]) -> list[MetricSeries]:
    """All series of a job: those of its log, which reach further back, and the reported ones of other metrics."""
    names = {series.name for series in logged}
    return [*logged, *(series for series in reported if series.name not in names)][:MAX_SERIES]


def finite_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _series(
    points: Sequence[_Point],
    names: Sequence[str],
    axis: str,
    newest: Mapping[str, float],
    dropped: Mapping[str, int] | None = None,
) -> list[MetricSeries]:
    """`newest` has the last value of each metric, finite or not, `dropped` how many of its values `points` lacks."""
    shown = [name for name in names if name != STEP and name in newest][:MAX_SERIES]
    points = [point for point in points if not point.values.keys().isdisjoint(shown)]
    has_steps = bool(points) and all(STEP in point.values for point in points)
    if has_steps:  # a program that resumes from a checkpoint repeats steps: the last values count
        points = [by_step for _, by_step in sorted({point.values[STEP]: point for point in points}.items())]
    positions = [point.values[STEP] if has_steps else float(index) for index, point in enumerate(points)]
    most = min(MAX_POINTS, MAX_ALL_POINTS // max(1, len(shown)))
    found = []
    for name in shown:
        samples = [
            SeriesValue(point.values[name], position, point.at)
            for position, point in zip(positions, points, strict=True)
            if name in point.values
        ]
        count = len(samples) + (dropped or {}).get(name, 0)
        found.append(_one(name, STEP if has_steps else axis, samples, count, newest[name], most))
    return found


def _one(name: str, axis: str, samples: Sequence[SeriesValue], count: int, newest: float, most: int) -> MetricSeries:
    shown = _thinned(samples, most)
    times = [sample.at for sample in shown if sample.at is not None]
    return MetricSeries(
        name,
        axis,
        [sample.position for sample in shown],
        [sample.value for sample in shown],
        times if len(times) == len(shown) else (),
        count,
        samples[-1].value if math.isfinite(newest) and samples else str(newest),
        min(samples, default=None, key=_value),
        max(samples, default=None, key=_value),
    )


def _thinned(samples: Sequence[SeriesValue], most: int) -> Sequence[SeriesValue]:
    """At most that many: the first and the last one, and the least and greatest of equal parts between them."""
    if len(samples) <= most:
        return samples
    between = samples[1:-1]
    size = -(-len(between) // max(1, (most - 2) // 2))
    kept = [samples[0]]
    for start in range(0, len(between), size):
        part = between[start : start + size]
        extremes = {min(part, key=_value), max(part, key=_value)}
        kept += sorted(extremes, key=lambda sample: sample.position)
    return [*kept, samples[-1]]


def _value(sample: SeriesValue) -> float:
    return sample.value
