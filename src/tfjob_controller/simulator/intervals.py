"""Means over seeds and how far they can be trusted: Student's 95 % confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom. Source: NIST/SEMATECH e-Handbook, table 1.3.6.7.2.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
# Beyond: that of 30, which is a little too careful.


@dataclass(frozen=True, slots=True)
class Interval:
    """`mean` ± `half`; None where one run says nothing of others."""

    mean: float
    half: float | None


def interval(values: Sequence[float]) -> Interval:
    """Of at least one value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None)
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return Interval(mean, t * statistics.stdev(values) / math.sqrt(len(values)))


def paired(values: Sequence[float], baseline: Sequence[float]) -> Interval:
    """Of the differences, seed by seed: both saw the same jobs."""
    return interval([each - other for each, other in zip(values, baseline, strict=True)])


def paired_change(values: Sequence[float], baseline: Sequence[float]) -> Interval | None:
    """Of the relative differences (-0.3 is 30 % less); None where there is nothing to compare with."""
    if not all(baseline):
        return None
    return interval([each / other - 1 for each, other in zip(values, baseline, strict=True)])
