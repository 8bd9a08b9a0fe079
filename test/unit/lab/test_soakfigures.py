"""Tests of lab.soakfigures: when the resource usage of a program counts as constant."""

from __future__ import annotations

import random

import pytest

from lab.soakfigures import Sample, figures, rest_figure, slope

# An hour, with a sample each minute.
MINUTES = 60


def samples(name: str, first: float, per_minute: float, minutes: int = MINUTES) -> list[Sample]:
    return [Sample(60.0 * minute, 1.0, {name: first + per_minute * minute}) for minute in range(minutes + 1)]


@pytest.mark.parametrize(
    ("name", "first", "per_minute", "is_ok"),
    [
        pytest.param("controller_rss", 100.0, 0.0, True, id="constant memory"),
        pytest.param("controller_rss", 100.0, 0.02, True, id="memory that rises by 1.2 % an hour"),
        pytest.param("controller_rss", 100.0, 0.05, False, id="memory that rises by 3 % an hour"),
        pytest.param("controller_rss", 100.0, -0.5, True, id="memory that falls"),
        pytest.param("controller_threads", 20.0, 0.0, True, id="constant threads"),
        pytest.param("controller_sockets", 20.0, 1 / 30, False, id="two sockets more in an hour"),
    ],
)
def test_a_figure_that_rises_beyond_its_limit_is_not_ok(
    name: str, first: float, per_minute: float, is_ok: bool
) -> None:
    (figure,) = figures(samples(name, first, per_minute))
    assert figure["name"] == f"soak_{name}"
    assert figure["value"] == pytest.approx(60 * per_minute, abs=1e-6)
    assert figure["ok"] is is_ok


def test_the_first_fifth_of_a_run_does_not_count() -> None:
    warm_up = [Sample(60.0 * minute, 1.0, {"controller_fds": 1.0 + minute}) for minute in range(12)]
    steady = [Sample(60.0 * minute, 1.0, {"controller_fds": 13.0}) for minute in range(12, 61)]
    (figure,) = figures([*warm_up, *steady])
    assert (figure["value"], figure["samples"], figure["ok"]) == (0.0, 49, True)


def test_a_short_run_reports_figures_without_a_verdict() -> None:
    (figure,) = figures(samples("controller_rss", 100.0, 5.0, minutes=10))
    assert figure["too_short"]
    assert "ok" not in figure


def test_a_run_without_samples_has_no_figures() -> None:
    assert not figures([])


def test_data_of_deleted_jobs_that_remains_in_memory_is_not_ok() -> None:
    before = Sample(0.0, 1.0, {"controller_remembered": 0.0, "controller_objects": 2.0, "controller_fds": 9.0})
    after = Sample(9.0, 1.0, {"controller_remembered": 1.0, "controller_objects": 2.0, "controller_fds": 12.0})
    assert rest_figure(before, before)["ok"]
    figure = rest_figure(before, after)
    assert (figure["value"], figure["ok"]) == (1.0, False)


def test_a_straight_line_has_an_exact_slope() -> None:
    rise = slope([(float(time), 5.0 + 2.0 * time) for time in range(20)])
    assert (rise.value, rise.low, rise.high) == pytest.approx((2.0, 2.0, 2.0))


def test_outliers_do_not_affect_the_slope() -> None:
    points = [(float(time), 100.0 if time % 10 == 0 else 7.0) for time in range(1, 40)]
    assert slope(points).value == 0.0


def test_the_interval_of_constant_noise_contains_zero() -> None:
    rng = random.Random(1)
    rise = slope([(float(time), 50.0 + rng.gauss(0.0, 1.0)) for time in range(400)])
    assert rise.low < 0.0 < rise.high
    assert abs(rise.value) < 0.01


def test_a_leak_smaller_than_the_noise_is_detected_over_many_points() -> None:
    rng = random.Random(2)
    rise = slope([(float(time), 50.0 + 0.01 * time + rng.gauss(0.0, 0.5)) for time in range(400)])
    assert 0.0 < rise.low < 0.01 < rise.high


def test_a_slope_requires_two_points() -> None:
    assert slope([(0.0, 1.0), (2.0, 5.0)]).value == 2.0
    with pytest.raises(ValueError, match="two points"):
        slope([(0.0, 1.0)])
