"""What is taken as a report of a training program, and what the refusal of anything else says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tfjob_controller.api.common.trainerstatus import (
    MAX_METRIC_TEXT,
    ReportError,
    decode_report,
    job_of_path,
    report_audience,
    report_path,
)

NOW = datetime(2026, 1, 31, 12, 0, 0, 999999, UTC)


def decoded(**status: Any) -> Any:
    return decode_report(json.dumps({"trainerStatus": status}).encode(), NOW)


def test_the_path_of_a_job_names_it() -> None:
    assert job_of_path(report_path("team", "my.job-1")) == ("team", "my.job-1")
    assert report_audience("team", "job") == "trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/job/status"


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("team", ".."),
        ("team", ""),
        ("", "job"),
        ("team", "a" * 254),
    ],
)
def test_a_path_that_names_no_job_is_of_none(namespace: str, name: str) -> None:
    assert job_of_path(report_path(namespace, name)) is None
    assert job_of_path(report_path("team", "job") + "?x") is None


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T13:00:00.5+01:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
        ("", "2026-01-31T12:00:00Z"),
    ],
)
def test_times_are_whole_seconds_in_utc(time: str, expected: str) -> None:
    assert decoded(lastUpdatedTime=time).last_updated_time == expected


def test_a_body_without_a_report_is_no_report() -> None:
    assert decode_report(b"{}", NOW) is None
    assert decode_report(b'{"trainerStatus": null}', NOW) is None


def test_fields_of_newer_clients_are_ignored() -> None:
    assert decoded(progressPercentage=5, newer={"a": 1}).progress_percentage == 5


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"progressPercentage": -1}, "trainerStatus.progressPercentage"),
        ({"estimatedRemainingSeconds": 2**31}, "trainerStatus.estimatedRemainingSeconds"),
        ({"metrics": [{"name": "loss"}]}, "metrics"),
        ({"metrics": [{"name": "n" * (MAX_METRIC_TEXT + 1), "value": "1"}]}, "trainerStatus.metrics[0].name"),
        ({"lastUpdatedTime": "0001-01-01T00:00:00+14:00"}, "trainerStatus.lastUpdatedTime"),
    ],
)
def test_a_value_outside_its_limits_is_refused_by_the_name_of_its_field(status: Any, field: str) -> None:
    with pytest.raises(ReportError) as refused:
        decoded(**status)
    assert field in str(refused.value)
    assert "\n" not in str(refused.value)
