"""Estimates the slope of a figure with the Theil-Sen estimator: the median of the slopes between all pairs of points.

Outliers do not affect it. The interval is Sen's (1968): the slopes at the ranks that follow from Kendall's variance, at
95 %. Points that are close in time are correlated, which would make the interval too narrow. They are grouped first,
and each group counts as one point with the medians of its times and values.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_GROUPS = 40
_NORMAL_95 = 1.96

Point = tuple[float, float]


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
    few = _grouped(points)
    slopes = sorted(
        (value - before) / (time - earlier)
        for number, (time, value) in enumerate(few)
        for earlier, before in few[:number]
    )
    count = len(few)
    half = _NORMAL_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2
    middle = (len(slopes) - 1) / 2
    low, high = max(0, math.floor(middle - half)), min(len(slopes) - 1, math.ceil(middle + half))
    return Slope(statistics.median(slopes), slopes[low], slopes[high])


def _grouped(points: Sequence[Point]) -> list[Point]:
    size = max(1, len(points) // _GROUPS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [_middle(group) for group in groups]


def _middle(group: Sequence[Point]) -> Point:
    return statistics.median(time for time, _ in group), statistics.median(value for _, value in group)
