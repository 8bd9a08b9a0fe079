"""Prints the figures of benchmarks.

A figure is measured in several rounds, each next to its baseline so that both see the same machine: `alternate` runs
them in turn, `report` prints one JSON line on standard output. Values are medians of the rounds; `spread` is the
distance between the highest and the lowest round as a share of the median; `ratio` is value / baseline. `ok` shows
whether the figure has reached its target (`Reach`). Everything else, such as progress, goes to standard error.

`BENCH_TINY=1` selects the tiny value of every `size` and judges nothing: it only shows that a benchmark works.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TINY = bool(os.environ.get("BENCH_TINY"))


def size(full: int, tiny: int) -> int:
    """Returns a size of a benchmark: the full or the tiny one."""
    return tiny if TINY else full


ROUNDS = size(3, tiny=1)


@dataclass(frozen=True, slots=True)
class Reach:
    """The target of a figure: limits on the value or on its ratio to the baseline; None means no limit."""

    max_value: float | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None

    def is_reached(self, value: float, ratio: float | None) -> bool:
        if self.max_value is not None and value > self.max_value:
            return False
        least, most = self.min_ratio or 0.0, self.max_ratio or math.inf
        return ratio is None or least <= ratio <= most


def progress(text: str) -> None:
    """Prints a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def alternate(measure: Callable[[], float], baseline: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Runs the baseline and the measurement in turn; returns the values of the measurement and of the baseline."""
    values: list[float] = []
    baselines: list[float] = []
    for number in range(1, ROUNDS + 1):
        baselines.append(baseline())
        values.append(measure())
        progress(f"round {number} of {ROUNDS}: {values[-1]:.4g}, baseline {baselines[-1]:.4g}")
    return values, baselines


def report(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    baselines: Sequence[float] = (),
    reach: Reach | None = None,
    **extra: Any,
) -> bool:
    """Prints a figure's line, with rounded values. Returns False if it missed its target."""
    value = statistics.median(values)
    figure: dict[str, Any] = {"name": name, "value": _rounded(value), "unit": unit}
    ratio = None
    if baselines:
        baseline = statistics.median(baselines)
        ratio = value / baseline
        figure |= {"baseline": _rounded(baseline), "ratio": _rounded(ratio)}
    figure |= {"rounds": len(values), "spread": _rounded(_spread(values))}
    if TINY:
        figure["tiny"] = True
    elif reach is not None:
        figure["ok"] = reach.is_reached(value, ratio)
    print(json.dumps(figure | extra), flush=True)
    return bool(figure.get("ok", True))


def rank(values: Sequence[float], share: float) -> float:
    """Returns the nearest-rank quantile: the smallest value with at least that share of values at or below it."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _spread(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
