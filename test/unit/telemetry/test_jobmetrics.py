"""The series of jobs, as a scraper sees them: no name or value of a job forges a line, or makes series without end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tfjob_controller.api.common.status import MAX_METRICS
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingJob, TrainingStatus
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.telemetry import jobmetrics
from tfjob_controller.telemetry.jobmetrics import (
    MAX_COUNTED,
    CheckpointCollector,
    CheckpointOfJob,
    JobCollector,
    JobMetrics,
    JobSeries,
    TrainingCollector,
    TrainingOfJob,
)

CHECKPOINT = "tfjob_checkpoint_timestamp_seconds"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)

FORGED = [
    pytest.param('a"} 1\ntfjob_forged{x="y', id="an end of the label and a line"),
    pytest.param("a\\", id="a backslash at the end"),
    pytest.param("a\n# HELP tfjob_forged x\ntfjob_forged 1\n", id="a series"),
    pytest.param("\x1b[2J\r\x00", id="control characters"),
    pytest.param("\u2028\u0085", id="line ends of Unicode"),
]


def registry(collector: Collector) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(collector)
    return made


def families(jobs: Sequence[TrainingOfJob]) -> list[Metric]:
    """As they are read from the exposition."""
    shown = generate_latest(registry(TrainingCollector(lambda: jobs))).decode()
    return list(text_string_to_metric_families(shown))


def metrics(jobs: Sequence[TrainingOfJob]) -> list[tuple[dict[str, str], float]]:
    """The labels and values of the series of metrics."""
    samples = [sample for family in families(jobs) for sample in family.samples]
    return [(sample.labels, sample.value) for sample in samples if sample.name == "tfjob_training_metric"]


def checkpoint_of(registry: CollectorRegistry, namespace: str, job: str) -> float | None:
    return registry.get_sample_value(CHECKPOINT, {"kind": "TrainJob", "namespace": namespace, "job": job})


@pytest.mark.parametrize(("text", "shown"), [("1e-5", 1e-5), ("-Inf", -math.inf), ("NaN", math.nan)])
def test_a_value_is_shown_as_the_number_that_it_is(text: str, shown: float) -> None:
    ((labels, value),) = metrics([("TrainJob", "ns", "j", {"loss": text})])
    assert labels == {"kind": "TrainJob", "namespace": "ns", "job": "j", "metric": "loss"}
    assert value == pytest.approx(shown, nan_ok=True)


def test_a_series_ends_with_its_job() -> None:
    jobs: list[CheckpointOfJob] = [("TrainJob", "ns", "j", SINCE)]
    shown = registry(CheckpointCollector(lambda: jobs))
    assert checkpoint_of(shown, "ns", "j") == SINCE.timestamp()
    jobs.clear()
    assert checkpoint_of(shown, "ns", "j") is None


def test_of_too_many_jobs_those_of_all_namespaces_in_turn_are_shown_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobmetrics, "MAX_JOBS", 2)
    names = [("a", "1"), ("a", "2"), ("b", "1")]
    checkpoints = registry(CheckpointCollector(lambda: [("TrainJob", *name, SINCE) for name in names]))
    assert [name for name in names if checkpoint_of(checkpoints, *name) is not None] == [("a", "1"), ("b", "1")]
    assert checkpoints.get_sample_value("tfjob_checkpoint_jobs_omitted") == 1
    trained = registry(TrainingCollector(lambda: [("TrainJob", *name, {"loss": "1"}) for name in names]))
    assert trained.get_sample_value("tfjob_training_metric_jobs", {"kind": "TrainJob", "namespace": "a"}) == 2
    assert trained.get_sample_value("tfjob_training_metric_jobs_omitted") == 1


def test_without_jobs_there_is_hardly_anything() -> None:
    assert [sample for family in families([]) for sample in family.samples if sample.value] == []


def test_saved_and_failed_checkpoints_and_repeated_steps_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, JobSeries("trainjob"))
    metrics.checkpoints_saved(3)
    metrics.checkpoints_failed(1)
    metrics.steps_repeated(37)
    names = ("checkpoints_saved", "checkpoint_failures", "repeated_steps")
    assert [registry.get_sample_value(f"trainjob_{name}_total") for name in names] == [3, 1, 37]


@pytest.mark.parametrize("text", FORGED)
def test_a_name_stays_the_value_of_its_label(text: str) -> None:
    jobs = [("TrainJob", text, text, {text: "1"})]
    assert "tfjob_forged" not in [family.name for family in families(jobs)]
    assert metrics(jobs) == [({"kind": "TrainJob", "namespace": text, "job": text, "metric": text}, 1.0)]


def test_a_namespace_with_thousands_of_jobs_takes_no_series_of_others() -> None:
    many = [("TrainJob", "a-hostile", f"job-{number}", {"loss": "1"}) for number in range(jobmetrics.MAX_JOBS + 500)]
    few = [("TrainJob", "team", f"train-{number}", {"loss": "1"}) for number in range(300)]
    shown = metrics(many + few)
    assert len(shown) == jobmetrics.MAX_JOBS
    assert sum(labels["namespace"] == "team" for labels, _ in shown) == 300


def test_a_status_of_thousands_of_types_and_states_has_a_bounded_number_of_series() -> None:
    types = tuple(RoleStatus(f"type-{number}", {"Running": 1}) for number in range(10_000))
    forged = job("hostile", TrainingStatus(phase="x", roles=types))
    real = RoleStatus("worker", {"Running": 4})
    good = job("team", TrainingStatus(phase="Running", roles=(real,)))
    shown = registry(
        JobCollector(JobSeries("tfjob", counts_workers=True, replica_type=str.upper), lambda: [forged, good])
    )
    assert len(generate_latest(shown).splitlines()) < 200
    labels = {"namespace": "team", "type": "WORKER", "state": "Running"}
    assert shown.get_sample_value("tfjob_replicas", labels) == 4


def job(namespace: str, status: TrainingStatus) -> TrainingJob:
    return TrainingJob(ObjectMeta(namespace=namespace, name="j"), status)


@pytest.mark.parametrize("value", ["1\ntfjob_forged 1", "", "1_000", "\uff11", "Infinity"])
def test_a_value_that_somebody_wrote_into_a_status_costs_its_own_series_and_no_other(value: str) -> None:
    jobs = [("TrainJob", "ns", "a", {"bad": value, "good": "1"}), ("TrainJob", "ns", "b", {"loss": "2"})]
    assert [labels["metric"] for labels, _ in metrics(jobs)] == ["good", "loss"]
    assert "tfjob_forged" not in [family.name for family in families(jobs)]


def test_a_status_with_thousands_of_metrics_has_no_more_series_than_a_spec_can_name() -> None:
    jobs = [("TrainJob", "ns", "a", {f"metric-{number}": "1" for number in range(10_000)})]
    assert len(metrics(jobs)) == MAX_METRICS


def test_the_counters_of_training_operator_forget_the_namespaces_that_were_counted_longest_ago() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, JobSeries("kubeflow_v1_job", frameworks=(("JAXJob", "jax"),)))
    for number in range(MAX_COUNTED):
        metrics.job_created("JAXJob", f"n{number}")
    metrics.job_deleted("JAXJob", "n0")
    metrics.job_created("JAXJob", "new")

    def created(namespace: str) -> float | None:
        labels = {"job_namespace": namespace, "framework": "jax"}
        return registry.get_sample_value("training_operator_jobs_created_total", labels)

    assert (created("n0"), created("n1"), created("n2"), created("new")) == (1, None, 1, 1)


def test_other_kinds_have_no_counters_of_training_operator() -> None:
    registry = CollectorRegistry()
    JobMetrics(registry, JobSeries("tfjob")).job_created("TFJob", "a")
    assert not [family.name for family in registry.collect() if family.name.startswith("training_operator")]
