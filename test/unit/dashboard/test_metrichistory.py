"""The series of a job's charts, from the lines of its log and from its status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tfjob_controller.dashboard.metrichistory import (
    MAX_ALL_POINTS,
    MAX_POINTS,
    MAX_REPORTS,
    MAX_SERIES,
    MetricSeries,
    ReportedMetrics,
    SeriesValue,
    charts,
    logged_series,
)

NAMES = ("loss", "accuracy", "step")


def shown(found: Sequence[MetricSeries]) -> list[tuple[object, ...]]:
    return [(each.name, each.axis, each.positions, each.values) for each in found]


def test_values_are_shown_over_steps() -> None:
    found = logged_series(["starts", "step=1 loss=0.9", "step=2 loss=0.5 accuracy=0.1", "done"], NAMES)
    assert shown(found) == [
        ("loss", "step", [1, 2], [0.9, 0.5]),
        ("accuracy", "step", [2], [0.1]),
    ]


def test_steps_that_were_repeated_show_their_last_values() -> None:
    found = logged_series(["step=1 loss=3", "step=2 loss=2", "step=1 loss=2.5", "step=2 loss=1"], NAMES)
    assert shown(found) == [("loss", "step", [1, 2], [2.5, 1])]


def test_without_steps_the_lines_are_the_axis() -> None:
    found = logged_series(["loss=3", "loss=nan", "step=7", "loss=2"], NAMES)
    assert shown(found) == [("loss", "line", [0, 1], [3, 2])]


def test_a_long_log_has_a_bounded_number_of_points() -> None:
    (found,) = logged_series([f"step={step} loss={step}" for step in range(MAX_POINTS * 3 + 1)], NAMES)
    assert MAX_POINTS / 2 < len(found.positions) <= MAX_POINTS
    assert found.positions[0] == 0


def test_a_log_without_metrics_has_no_series() -> None:
    assert logged_series(["hello", "step=1"], NAMES) == []


def test_reported_values_are_shown_over_their_steps() -> None:
    reported = ReportedMetrics()
    for values in ({"loss": 3.0, "step": 10.0}, {"loss": 3.0, "step": 10.0}, {"loss": 2.0, "step": 20.0}):
        reported.record(values)
    assert shown(reported.series()) == [("loss", "step", [10, 20], [3, 2])]


def test_reports_without_steps_are_counted_and_values_that_are_not_finite_left_out() -> None:
    reported = ReportedMetrics()
    for values in ({"reward": 1.0}, {"reward": float("nan")}, {"reward": 4.0}):
        reported.record(values)
    assert shown(reported.series()) == [("reward", "report", [0, 1], [1, 4])]


def test_a_long_series_of_reports_is_thinned_and_keeps_its_beginning() -> None:
    reported = ReportedMetrics()
    for step in range(MAX_POINTS * 10):
        reported.record({"loss": float(step), "step": float(step)})
    (found,) = reported.series()
    assert MAX_REPORTS / 3 < len(found.positions) <= MAX_REPORTS
    assert (found.positions[0], found.values[0]) == (0, 0)
    assert found.positions[-1] > MAX_POINTS * 9.9


def test_a_program_that_reports_many_metrics_has_a_bounded_number_of_series() -> None:
    reported = ReportedMetrics()
    for number in range(100):
        reported.record({"step": float(number)} | {f"m{number}-{index}": 1.0 for index in range(20)})
    assert len(reported.series()) <= MAX_SERIES


def test_the_log_comes_before_reports_of_the_same_metric() -> None:
    logged = MetricSeries("loss", "step", [1, 2, 3], [3, 2, 1])
    reported = [MetricSeries("loss", "report", [0], [1]), MetricSeries("reward", "report", [0], [5])]
    assert charts([logged], reported) == [logged, reported[1]]
    assert len(charts([], [MetricSeries(f"m{n}", "report", [0], [1]) for n in range(20)])) == MAX_SERIES


def test_lines_that_begin_with_times_give_times() -> None:
    lines = ["2026-01-01T00:00:01.5Z step=1 loss=3", "2026-01-01T00:00:02Z noise", "2026-01-01T00:00:03Z step=2 loss=2"]
    (found,) = logged_series(lines, NAMES)
    begin = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert (found.positions, found.times) == ([1, 2], [begin + 1.5, begin + 3])
    (found,) = logged_series([*lines, "step=3 loss=1"], NAMES)
    assert (len(found.values), found.times) == (3, ())


def test_reports_have_the_times_at_which_they_came() -> None:
    reported = ReportedMetrics()
    for number in range(3):
        reported.record({"reward": float(number)}, at=100.0 + number)
    (found,) = reported.series()
    assert (found.positions, found.values, found.times) == ([0, 1, 2], [0, 1, 2], [100, 101, 102])


def test_a_long_series_keeps_its_last_value() -> None:
    (found,) = logged_series([f"step={step} loss={step}" for step in range(MAX_POINTS * 3 + 2)], NAMES)
    assert (found.positions[-1], found.values[-1]) == (MAX_POINTS * 3 + 1, MAX_POINTS * 3 + 1)


def test_all_series_together_are_bounded() -> None:
    names = [f"m{number}" for number in range(MAX_SERIES)]
    lines = [" ".join(f"{name}={step}" for name in names) for step in range(MAX_POINTS * 2)]
    assert sum(len(series.values) for series in logged_series(lines, names)) <= MAX_ALL_POINTS


def test_a_long_series_keeps_spikes_and_tells_of_all_its_values() -> None:
    values = {step: (50, 1, 2, 3)[step % 4] for step in range(MAX_POINTS * 4)} | {777: 1e6, 2001: -5}
    (found,) = logged_series([f"step={step} loss={value}" for step, value in values.items()], NAMES)
    assert MAX_POINTS / 2 < len(found.values) <= MAX_POINTS
    assert list(found.positions) == sorted(set(found.positions))
    assert all(values[int(step)] == value for step, value in zip(found.positions, found.values, strict=True))
    assert {1e6, -5, 50, 1} <= set(found.values)
    assert (found.positions[0], found.positions[-1]) == (0, MAX_POINTS * 4 - 1)
    assert (found.count, found.last) == (MAX_POINTS * 4, 3)
    assert (found.least, found.greatest) == (SeriesValue(-5, 2001), SeriesValue(1e6, 777))


def test_a_long_series_of_reports_keeps_its_extremes_and_counts_all() -> None:
    reported = ReportedMetrics()
    for step in range(MAX_REPORTS * 5):
        reported.record({"loss": 1e6 if step == 11 else float(step % 7), "step": float(step)})
    (found,) = reported.series()
    assert found.greatest == SeriesValue(1e6, 11)
    assert 1e6 in found.values
    assert found.count == MAX_REPORTS * 5


@pytest.mark.parametrize("last", ["nan", "inf", "-inf"])
def test_a_last_value_that_is_not_finite_is_named(last: str) -> None:
    lines = ["step=1 loss=2", f"step=2 loss={last} accuracy={last}"]
    loss, accuracy = logged_series(lines, NAMES)
    assert (loss.values, loss.last, loss.least) == ([2], last, SeriesValue(2, 1))
    assert (accuracy.values, accuracy.last, accuracy.count, accuracy.least) == ([], last, 0, None)
    reported = ReportedMetrics()
    for value in (2.0, float(last)):
        reported.record({"loss": value})
    assert [(each.values, each.last) for each in reported.series()] == [([2], last)]
    (finite,) = logged_series([*lines[:1], "step=2 loss=nan", "step=3 loss=1"], NAMES)
    assert (finite.values, finite.last) == ([2, 1], 1)
