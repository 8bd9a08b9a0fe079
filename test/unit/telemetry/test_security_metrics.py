"""What jobs and their programs say, as labels of series: nobody forges a line, and nobody makes series without end."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tfjob_controller.api.common.status import ReplicaStatus, TrainingStatus
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.api.trainjob.types import MAX_METRICS
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.telemetry import jobmetrics
from tfjob_controller.telemetry.jobmetrics import JobCollector, TrainingCollector, TrainingOfJob

FORGED = [
    pytest.param('a"} 1\ntfjob_forged{x="y', id="an end of the label and a line"),
    pytest.param("a\\", id="a backslash at the end"),
    pytest.param("a\n# HELP tfjob_forged x\ntfjob_forged 1\n", id="a series"),
    pytest.param("\x1b[2J\r\x00", id="control characters"),
    pytest.param("\u2028\u0085", id="line ends of Unicode"),
]


def exposition(jobs: list[TrainingOfJob]) -> str:
    registry = CollectorRegistry()
    registry.register(TrainingCollector(lambda: jobs))
    return generate_latest(registry).decode()


def job(namespace: str, status: TrainingStatus) -> TFJob:
    return TFJob(ObjectMeta(namespace=namespace, name="j"), status=status)


@pytest.mark.parametrize("text", FORGED)
def test_a_name_stays_the_value_of_its_label(text: str) -> None:
    shown = exposition([("TrainJob", text, text, {text: "1"})])
    families = list(text_string_to_metric_families(shown))
    assert "tfjob_forged" not in [family.name for family in families]
    (sample,) = [each for family in families for each in family.samples if each.name == "tfjob_training_metric"]
    assert sample.labels == {"kind": "TrainJob", "namespace": text, "job": text, "metric": text}


def test_the_number_of_series_is_bounded_for_any_number_of_jobs() -> None:
    many = [("TrainJob", "ns", f"job-{number}", {"loss": "1"}) for number in range(jobmetrics.MAX_JOBS + 500)]
    lines = [line for line in exposition(many).splitlines() if line.startswith("tfjob_training_metric{")]
    assert len(lines) == jobmetrics.MAX_JOBS


def test_a_namespace_with_thousands_of_jobs_takes_no_series_of_others() -> None:
    many = [("TrainJob", "a-hostile", f"job-{number}", {"loss": "1"}) for number in range(jobmetrics.MAX_JOBS + 500)]
    few = [("TrainJob", "team", f"train-{number}", {"loss": "1"}) for number in range(300)]
    shown = [line for line in exposition(many + few).splitlines() if line.startswith("tfjob_training_metric{")]
    assert len(shown) == jobmetrics.MAX_JOBS
    assert sum('namespace="team"' in line for line in shown) == 300


def test_a_status_of_thousands_of_types_and_states_has_a_bounded_number_of_series() -> None:
    types = tuple(ReplicaStatus(f"type-{number}", "", {"Running": 1}) for number in range(10_000))
    forged = job("hostile", TrainingStatus(phase="x", replica_statuses=types))
    real = ReplicaStatus("WORKER", "Running", {"Running": 4})
    good = job("team", TrainingStatus(phase="Running", replica_statuses=(real,)))
    registry = CollectorRegistry()
    registry.register(JobCollector("tfjob", lambda: [forged, good]))
    assert len(generate_latest(registry).splitlines()) < 200
    labels = {"namespace": "team", "type": "WORKER", "state": "Running"}
    assert registry.get_sample_value("tfjob_replicas", labels) == 4


@pytest.mark.parametrize("value", ["1\ntfjob_forged 1", "", "1_000", "\uff11", "Infinity"])
def test_a_value_that_somebody_wrote_into_a_status_costs_its_own_series_and_no_other(value: str) -> None:
    shown = exposition([("TrainJob", "ns", "a", {"bad": value, "good": "1"}), ("TrainJob", "ns", "b", {"loss": "2"})])
    families = list(text_string_to_metric_families(shown))
    samples = [each for family in families for each in family.samples if each.name == "tfjob_training_metric"]
    assert [each.labels["metric"] for each in samples] == ["good", "loss"]
    assert "tfjob_forged" not in [family.name for family in families]


def test_a_status_with_thousands_of_metrics_has_no_more_series_than_a_spec_can_name() -> None:
    shown = exposition([("TrainJob", "ns", "a", {f"metric-{number}": "1" for number in range(10_000)})])
    lines = [line for line in shown.splitlines() if line.startswith("tfjob_training_metric{")]
    assert len(lines) == MAX_METRICS
