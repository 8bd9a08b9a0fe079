"""The rules of telemetry/jobmetrics.py, as a scraper sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry

from tfjob_controller.telemetry import jobmetrics
from tfjob_controller.telemetry.jobmetrics import TrainingCollector, TrainingOfJob

SERIES = "tfjob_training_metric"


def registry(jobs: Iterable[TrainingOfJob]) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(TrainingCollector(lambda: jobs))
    return made


def value(jobs: Iterable[TrainingOfJob], metric: str, job: str = "j") -> float | None:
    labels = {"kind": "TrainJob", "namespace": "ns", "job": job, "metric": metric}
    return registry(jobs).get_sample_value(SERIES, labels)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1e-5", 1e-5), ("-Inf", -math.inf)],
)
def test_a_running_jobs_values_are_shown(text: str, shown: float) -> None:
    assert value([("TrainJob", "ns", "j", {"loss": text})], "loss") == shown


def test_what_is_not_a_number_is_shown_as_that_and_not_as_the_last_good_one() -> None:
    shown = value([("TrainJob", "ns", "j", {"loss": "NaN"})], "loss")
    assert shown is not None
    assert math.isnan(shown)


def test_a_series_ends_with_its_job() -> None:
    jobs: list[TrainingOfJob] = [("TrainJob", "ns", "j", {"loss": "1"})]
    scraped = registry(jobs)
    labels = {"kind": "TrainJob", "namespace": "ns", "job": "j", "metric": "loss"}
    assert scraped.get_sample_value(SERIES, labels) == 1
    jobs.clear()
    assert scraped.get_sample_value(SERIES, labels) is None


def test_of_too_many_jobs_the_first_are_shown_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobmetrics, "MAX_JOBS", 2)
    jobs: list[TrainingOfJob] = [("TrainJob", "ns", name, {"loss": "1"}) for name in ("c", "a", "b")]
    assert [value(jobs, "loss", name) for name in ("a", "b", "c")] == [1, 1, None]
    scraped = registry(jobs)
    assert scraped.get_sample_value(f"{SERIES}_jobs", {"kind": "TrainJob", "namespace": "ns"}) == 3
    assert scraped.get_sample_value(f"{SERIES}_jobs_omitted") == 1


def test_without_jobs_there_is_hardly_anything() -> None:
    assert [sample for family in registry([]).collect() for sample in family.samples if sample.value] == []
