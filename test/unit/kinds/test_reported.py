"""The metrics and the progress of a TrainJob, when its program reports them and when its log has them."""

from __future__ import annotations

import pytest

from tfjob_controller.api.common.status import MAX_METRICS, Metric
from tfjob_controller.api.common.trainerstatus import ReportedMetric, TrainerStatus
from tfjob_controller.kinds.reported import metrics_and_progress, reported_metrics

TIME = "2026-01-31T12:00:00Z"
NAMES = ("loss", "step", "epoch")
LOGGED = {"loss": Metric("loss", "0.5", "then"), "step": Metric("step", "40", "then")}


def report(*metrics: tuple[str, str], percent: int | None = None, seconds: int | None = None) -> TrainerStatus:
    return TrainerStatus(percent, seconds, tuple(ReportedMetric(*each) for each in metrics), TIME)


def test_without_a_report_the_log_counts() -> None:
    assert metrics_and_progress(NAMES, LOGGED, None) == ((*LOGGED.values(),), "step 40")


def test_what_is_reported_replaces_what_is_logged() -> None:
    metrics, progress = metrics_and_progress(NAMES, LOGGED, report(("loss", "0.25"), ("f1", "1"), percent=3))
    assert metrics == (Metric("loss", "0.25", TIME), LOGGED["step"], Metric("f1", "1", TIME))
    assert progress == "3 %"


def test_a_report_without_progress_leaves_that_of_the_metrics() -> None:
    assert metrics_and_progress(NAMES, LOGGED, report(("epoch", "2")))[1] == "epoch 2, step 40"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, ""), (1, "about 1s left"), (119, "about 119s left"), (330, "about 5m left"), (7200, "about 2h left"),
     (3 * 86400, "about 3d left")],
)  # fmt: skip
def test_the_remaining_time_is_in_words(seconds: int, words: str) -> None:
    assert metrics_and_progress((), {}, report(seconds=seconds))[1] == words


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-05", "1e-05"), ("nan", "NaN"), ("inf", "+Inf"), ("-Infinity", "-Inf"), (".5", "0.5"), ("1_000", "1000.0")],
)
def test_numbers_are_as_the_status_has_them(text: str, value: str) -> None:
    assert reported_metrics(report(("m", text)))["m"].value == value


@pytest.mark.parametrize("metric", [("m", "fast"), ("m", "0x1F"), ("a b", "1"), ("\x1b[2J", "1"), ("n" * 64, "1")])
def test_what_is_no_number_or_has_no_usable_name_is_no_metric(metric: tuple[str, str]) -> None:
    assert reported_metrics(report(metric)) == {}


def test_the_number_of_metrics_is_limited() -> None:
    many = report(*((f"m{number}", "1") for number in range(256)))
    assert len(metrics_and_progress(NAMES, LOGGED, many)[0]) == MAX_METRICS
