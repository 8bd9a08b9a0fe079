"""The series of a job's charts, from the lines of its log and from its status."""

from __future__ import annotations

from datetime import UTC, datetime

from tfjob_controller.dashboard.metrichistory import (
    MAX_ALL_POINTS,
    MAX_POINTS,
    MAX_REPORTS,
    MAX_SERIES,
    MetricSeries,
    ReportedMetrics,
    charts,
    logged_series,
)

NAMES = ("loss", "accuracy", "step")


def test_values_are_shown_over_steps() -> None:
    found = logged_series(["starts", "step=1 loss=0.9", "step=2 loss=0.5 accuracy=0.1", "done"], NAMES)
    assert found == [
        MetricSeries("loss", "step", [1, 2], [0.9, 0.5]),
        MetricSeries("accuracy", "step", [2], [0.1]),
    ]


def test_steps_that_were_repeated_show_their_last_values() -> None:
    found = logged_series(["step=1 loss=3", "step=2 loss=2", "step=1 loss=2.5", "step=2 loss=1"], NAMES)
    assert found == [MetricSeries("loss", "step", [1, 2], [2.5, 1])]


def test_without_steps_the_lines_are_the_axis() -> None:
    found = logged_series(["loss=3", "loss=nan", "step=7", "loss=2"], NAMES)
    assert found == [MetricSeries("loss", "line", [0, 1], [3, 2])]


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
    assert reported.series() == [MetricSeries("loss", "step", [10, 20], [3, 2])]


def test_reports_without_steps_are_counted_and_values_that_are_not_finite_left_out() -> None:
    reported = ReportedMetrics()
    for values in ({"reward": 1.0}, {"reward": float("nan")}, {"reward": 4.0}):
        reported.record(values)
    assert reported.series() == [MetricSeries("reward", "report", [0, 1], [1, 4])]


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
    assert reported.series() == [MetricSeries("reward", "report", [0, 1, 2], [0, 1, 2], [100, 101, 102])]


def test_a_long_series_keeps_its_last_value() -> None:
    (found,) = logged_series([f"step={step} loss={step}" for step in range(MAX_POINTS * 3 + 2)], NAMES)
    assert (found.positions[-1], found.values[-1]) == (MAX_POINTS * 3 + 1, MAX_POINTS * 3 + 1)


def test_all_series_together_are_bounded() -> None:
    names = [f"m{number}" for number in range(MAX_SERIES)]
    lines = [" ".join(f"{name}={step}" for name in names) for step in range(MAX_POINTS * 2)]
    assert sum(len(series.values) for series in logged_series(lines, names)) <= MAX_ALL_POINTS
