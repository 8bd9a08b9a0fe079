"""Computes the figures of a soak from its samples: one for each quantity that must not grow."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from soak.samples import Sample
from soak.slope import slope

# In this time caches fill, pools open their connections, and the allocator reaches its size.
WARM_UP_SHARE = 0.2
# A shorter time is not enough for a slope per hour.
LEAST_MINUTES = 10.0
RSS_LIMIT_SHARE = 0.02
_HOUR_SECONDS = 3600.0

Object = dict[str, Any]


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples after the warm-up."""
    begin = WARM_UP_SHARE * samples[-1].seconds if samples else 0.0
    return [each for each in samples if each.seconds >= begin]


def figures(samples: Sequence[Sample]) -> list[Object]:
    """Returns the figures, in the order of their names; none if there are too few samples."""
    kept = after_warm_up(samples)
    return [_figure(name, kept) for name in kept[0].figures] if len(kept) > 1 else []


def rest_figure(before: Sample, after: Sample) -> Object:
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


def _figure(name: str, samples: Sequence[Sample]) -> Object:
    """Returns a figure, which is not `ok` if the lower end of its slope's interval exceeds its limit per hour."""
    points = [(each.seconds, each.figures[name]) for each in samples]
    values = [value for _, value in points]
    found, level = slope(points), statistics.median(values)
    is_memory = name.endswith("_rss")
    limit = RSS_LIMIT_SHARE * level if is_memory else 0.0
    minutes = (points[-1][0] - points[0][0]) / 60.0
    low = found.low * _HOUR_SECONDS
    return {
        "name": f"soak_{name}",
        "value": _rounded(found.value * _HOUR_SECONDS),
        "unit": "MB/h" if is_memory else "1/h",
        "low": _rounded(low),
        "high": _rounded(found.high * _HOUR_SECONDS),
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
