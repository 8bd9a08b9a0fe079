"""Samples the resource usage of programs, and computes a figure for each quantity that must not grow.

A figure is the slope of its samples by the Theil-Sen estimator: the median of the slopes between all pairs of points.
Outliers do not affect it. The interval is Sen's (1968): the slopes at the ranks that follow from Kendall's variance, at
95 %. Points that are close in time are correlated, which would make the interval too narrow. They are grouped first,
and each group counts as one point with the medians of its times and values.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench import usage
from localcluster.ourprogram import DEBUG, METRICS, OurProgram

# In this time caches fill, pools open their connections, and the allocator reaches its size.
WARM_UP_SHARE = 0.2
# A shorter time is not enough for a slope per hour.
LEAST_MINUTES = 10.0
RSS_LIMIT_SHARE = 0.02
_HOUR_SECONDS = 3600.0
_GROUPS = 40
_NORMAL_95 = 1.96
_OBJECTS = re.compile(r"^informer_objects\{[^}]*\} (\S+)$", re.MULTILINE)

Point = tuple[float, float]


class Sample(msgspec.Struct, frozen=True):
    """`figures` by name, such as controller_rss, in megabytes or numbers; `seconds` since the begin."""

    seconds: float
    load: float
    figures: dict[str, float]


def sample(seconds: float, programs: Mapping[str, OurProgram]) -> Sample:
    """Returns a sample of all programs. Raises OSError, LocalClusterError and HTTPError if one does not respond."""
    figures = {
        f"{name}_{figure}": value
        for name, program in programs.items()
        for figure, value in _figures_of(program).items()
    }
    return Sample(seconds, os.getloadavg()[0], figures)


def _figures_of(program: OurProgram) -> dict[str, float]:
    files = _files(program.pid)
    figures: dict[str, float] = {
        "rss": usage.resident_bytes(program.pid) / 1e6,
        "threads": len(os.listdir(f"/proc/{program.pid}/task")),
        "fds": len(files),
        "sockets": sum(target.startswith("socket:") for target in files),
        "objects": sum(float(count) for count in _OBJECTS.findall(program.page(METRICS, "/metrics"))),
    }
    if DEBUG in program.urls:
        # The jobs of which it has data beyond its caches.
        figures["remembered"] = msgspec.json.decode(program.page(DEBUG, "/debug/syncs"))["jobs_remembered"]
    return figures


def _files(pid: int) -> list[str]:
    """Returns the targets of its file descriptors, without those that are closed meanwhile."""
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(entry))
    return targets


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope per unit of time, with its 95 % confidence interval from `low` to `high`."""

    value: float
    low: float
    high: float


def slope(points: Sequence[Point]) -> Slope:
    """Returns the slope of (time, value) points in the order of time. Raises ValueError for fewer than two."""
    if len(points) < 2:
        raise ValueError("a slope requires at least two points")
    size = max(1, len(points) // _GROUPS)
    groups = [_middle(points[start : start + size]) for start in range(0, len(points), size)]
    slopes = sorted(
        (value - before) / (time - earlier) for (earlier, before), (time, value) in itertools.combinations(groups, 2)
    )
    count = len(groups)
    half = _NORMAL_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2
    middle = (len(slopes) - 1) / 2
    low, high = max(0, math.floor(middle - half)), min(len(slopes) - 1, math.ceil(middle + half))
    return Slope(statistics.median(slopes), slopes[low], slopes[high])


def _middle(group: Sequence[Point]) -> Point:
    return statistics.median(time for time, _ in group), statistics.median(value for _, value in group)


def figures(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Returns the figures of the samples after the warm-up; none if there are too few samples."""
    begin = WARM_UP_SHARE * samples[-1].seconds if samples else 0.0
    kept = [taken for taken in samples if taken.seconds >= begin]
    return [_figure(name, kept) for name in kept[0].figures] if len(kept) > 1 else []


def rest_figure(before: Sample, after: Sample) -> dict[str, Any]:
    """Compares before the first job with after the deletion of the last: nothing more may be cached or remembered."""
    kept = [name for name in before.figures if name.endswith(("_objects", "_remembered"))]
    grown = sum(max(0.0, after.figures[name] - before.figures[name]) for name in kept)
    return {
        "name": "soak_rest",
        "value": grown,
        "unit": "objects",
        "before": {name: _rounded(value) for name, value in before.figures.items()},
        "after": {name: _rounded(value) for name, value in after.figures.items()},
        "ok": grown == 0,
    }


def _figure(name: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns a figure, which is not `ok` if the lower end of its slope's interval exceeds its limit per hour."""
    points = [(taken.seconds, taken.figures[name]) for taken in samples]
    values = [value for _, value in points]
    rise, level = slope(points), statistics.median(values)
    is_memory = name.endswith("_rss")
    limit = RSS_LIMIT_SHARE * level if is_memory else 0.0
    minutes = (points[-1][0] - points[0][0]) / 60.0
    low = rise.low * _HOUR_SECONDS
    return {
        "name": f"soak_{name}",
        "value": _rounded(rise.value * _HOUR_SECONDS),
        "unit": "MB/h" if is_memory else "1/h",
        "low": _rounded(low),
        "high": _rounded(rise.high * _HOUR_SECONDS),
        "limit": _rounded(limit),
        "level": _rounded(level),
        "least": _rounded(min(values)),
        "most": _rounded(max(values)),
        "last": _rounded(values[-1]),
        "samples": len(values),
        "minutes": round(minutes, 1),
        **({"ok": low <= limit} if minutes >= LEAST_MINUTES else {"too_short": True}),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
