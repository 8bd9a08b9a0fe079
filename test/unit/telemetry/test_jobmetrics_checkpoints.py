"""The series of checkpoints, as a scraper sees them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from tfjob_controller.telemetry import jobmetrics
from tfjob_controller.telemetry.jobmetrics import CheckpointCollector, CheckpointOfJob, JobMetrics

SERIES = "tfjob_checkpoint_timestamp_seconds"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def value(registry: CollectorRegistry, namespace: str, job: str) -> float | None:
    return registry.get_sample_value(SERIES, {"kind": "TrainJob", "namespace": namespace, "job": job})


def test_a_running_job_has_a_series_that_ends_with_it() -> None:
    jobs: list[CheckpointOfJob] = [("TrainJob", "ns", "j", SINCE)]
    registry = CollectorRegistry()
    registry.register(CheckpointCollector(lambda: jobs))
    assert value(registry, "ns", "j") == SINCE.timestamp()
    jobs.clear()
    assert value(registry, "ns", "j") is None


def test_of_too_many_jobs_those_of_all_namespaces_in_turn_have_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobmetrics, "MAX_JOBS", 2)
    jobs: list[CheckpointOfJob] = [("TrainJob", ns, name, SINCE) for ns, name in (("a", "1"), ("a", "2"), ("b", "1"))]
    registry = CollectorRegistry()
    registry.register(CheckpointCollector(lambda: jobs))
    shown = [(ns, name) for _, ns, name, _ in jobs if value(registry, ns, name) is not None]
    assert shown == [("a", "1"), ("b", "1")]
    assert registry.get_sample_value("tfjob_checkpoint_jobs_omitted") == 1


def test_saved_and_failed_checkpoints_and_repeated_steps_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, "trainjob")
    metrics.checkpoints_saved(3)
    metrics.checkpoints_failed(1)
    metrics.steps_repeated(37)
    names = ("checkpoints_saved", "checkpoint_failures", "repeated_steps")
    assert [registry.get_sample_value(f"trainjob_{name}_total") for name in names] == [3, 1, 37]
