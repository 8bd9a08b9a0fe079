"""Tests of soak.slope: the slope of a series of points and its confidence interval."""

from __future__ import annotations

import random

import pytest

from soak.slope import slope


def test_a_straight_line_has_an_exact_slope() -> None:
    found = slope([(float(time), 5.0 + 2.0 * time) for time in range(20)])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_outliers_do_not_affect_the_slope() -> None:
    points = [(float(time), 100.0 if time % 10 == 0 else 7.0) for time in range(1, 40)]
    assert slope(points).value == 0.0


def test_the_interval_of_constant_noise_contains_zero() -> None:
    rng = random.Random(1)
    found = slope([(float(time), 50.0 + rng.gauss(0.0, 1.0)) for time in range(400)])
    assert found.low < 0.0 < found.high
    assert abs(found.value) < 0.01


def test_a_leak_smaller_than_the_noise_is_detected_over_many_points() -> None:
    rng = random.Random(2)
    found = slope([(float(time), 50.0 + 0.01 * time + rng.gauss(0.0, 0.5)) for time in range(400)])
    assert 0.0 < found.low < 0.01 < found.high


def test_a_slope_requires_two_points() -> None:
    assert slope([(0.0, 1.0), (2.0, 5.0)]).value == 2.0
    with pytest.raises(ValueError, match="two points"):
        slope([(0.0, 1.0)])
