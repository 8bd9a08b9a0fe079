"""Tests of soak.figures: when the resource usage of a program counts as constant."""

from __future__ import annotations

import pytest

from soak.figures import figures, rest_figure
from soak.samples import Sample

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
