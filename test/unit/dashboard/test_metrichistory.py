"""The series of a job's chart, from the lines of its log."""

from __future__ import annotations

from tfjob_controller.dashboard.metrichistory import MAX_POINTS, metric_history

NAMES = ("loss", "accuracy", "step")


def test_values_are_shown_over_steps() -> None:
    found = metric_history(["starts", "step=1 loss=0.9", "step=2 loss=0.5 accuracy=0.1", "done"], NAMES)
    assert (found.axis, found.positions, found.names) == ("step", [1, 2], ["loss", "accuracy"])
    assert found.values == [[0.9, 0.5], [None, 0.1]]


def test_steps_that_were_repeated_show_their_last_values() -> None:
    found = metric_history(["step=1 loss=3", "step=2 loss=2", "step=1 loss=2.5", "step=2 loss=1"], NAMES)
    assert (found.positions, found.values) == ([1, 2], [[2.5, 1]])


def test_without_steps_the_lines_are_the_axis() -> None:
    found = metric_history(["loss=3", "loss=nan", "step=7", "loss=2"], NAMES)
    assert (found.axis, found.positions, found.values) == ("line", [0, 1], [[3, 2]])


def test_a_long_log_has_a_bounded_number_of_points() -> None:
    found = metric_history([f"step={step} loss={step}" for step in range(MAX_POINTS * 3 + 1)], NAMES)
    assert MAX_POINTS / 2 < len(found.positions) <= MAX_POINTS
    assert found.positions[0] == 0


def test_a_log_without_metrics_has_no_series() -> None:
    found = metric_history(["hello", "step=1"], NAMES)
    assert (found.names, found.values, found.positions) == ([], [], [])
