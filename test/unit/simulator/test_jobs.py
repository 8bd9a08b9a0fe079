"""The rules of jobs: how fast they work, and how random ones are made."""

from __future__ import annotations

import statistics

import pytest

from tfjob_controller.simulator.jobs import RandomWorkload
from tfjob_controller.simulator.policies import SpeedModel


@pytest.mark.parametrize(
    ("workers", "nodes", "speed"),
    [
        pytest.param(1, 1, 1.0, id="one worker is the unit"),
        pytest.param(2, 1, 1.8, id="two keep 90 % of their worth"),
        pytest.param(4, 1, 3.24, id="four 81 %"),
        pytest.param(8, 2, 0.75 * 8 * 0.729, id="on several nodes three quarters of that"),
        pytest.param(3, 1, 3 * 0.9**1.584962500721156, id="between powers of two"),
        pytest.param(0, 1, 0.0, id="nobody does nothing"),
    ],
)
def test_speed_is_that_of_the_documented_model(workers: int, nodes: int, speed: float) -> None:
    assert SpeedModel().speed(workers, nodes) == pytest.approx(speed)


def test_a_seed_says_everything() -> None:
    assert RandomWorkload().generate(7) == RandomWorkload().generate(7)
    assert RandomWorkload().generate(7) != RandomWorkload().generate(8)


def test_random_jobs_are_such_as_was_asked_for() -> None:
    workload = RandomWorkload(jobs=4000, mean_arrival_seconds=30.0, work_median=120.0, work_sigma=0.8)
    jobs = workload.generate(1)
    assert [job.name for job in jobs] == sorted({job.name for job in jobs})
    arrivals = [job.arrival_ms for job in jobs]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] / 1000 / len(jobs) == pytest.approx(30.0, rel=0.1)
    assert statistics.median(job.work / job.workers for job in jobs) == pytest.approx(120.0, rel=0.1)
    assert {(job.workers, job.min_workers, job.max_workers) for job in jobs} == {
        (1, 1, 2),
        (2, 1, 4),
        (4, 2, 8),
        (8, 4, 16),
    }
    assert {(job.servers, job.gpus) for job in jobs} == {(1, 1)}
