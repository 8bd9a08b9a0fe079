"""The progress reports of training programs, in Kubeflow Trainer's protocol: path, audience of the token, and body.

A program sends `POST <url of the job>` with the body `{"trainerStatus": {…}}` and a token whose audience names the job.
The controller copies the last report to `status.trainerStatus` of the TrainJob, in both API groups.

Source: KEP-2779 of kubeflow/trainer; pkg/apis/trainer/v1alpha1/trainjob_types.go (TrainerStatus) for fields and limits;
pkg/statusserver/utils.go for the path and the audience.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.schema import A_NAME, INT32_MAX, describe, limit_violations, matches
from tfjob_controller.kube.names import MAX_NAME
from tfjob_controller.util.timestamps import format_time

MAX_REPORT_BYTES = 64 * 1024
MAX_REPORTED_METRICS = 256
MAX_METRIC_TEXT = 64

_GROUP_VERSION = "trainer.kubeflow.org/v1alpha1"
_PATH = f"/apis/{_GROUP_VERSION}/namespaces/{{}}/trainjobs/{{}}/status"
_AUDIENCE = f"{_GROUP_VERSION}/namespaces/{{}}/trainjobs/{{}}/status"
_TARGET = re.compile(_PATH.replace(".", r"\.").format("([a-z0-9-]{1,63})", f"([a-z0-9.-]{{1,{MAX_NAME}}})"))


class ReportError(Exception):
    """The report is invalid. The message is one line that names the field."""


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here."""


class ReportedMetric(_Value, frozen=True, omit_defaults=False):
    """One metric of a report."""

    name: Annotated[
        str, describe("The name that the program uses, such as loss.", minLength=1, maxLength=MAX_METRIC_TEXT)
    ]
    value: Annotated[str, describe("The value as text.", minLength=1, maxLength=MAX_METRIC_TEXT)]


class TrainerStatus(_Value, frozen=True):
    """The last report of a training program."""

    progress_percentage: Annotated[
        int | None, describe("How much of the training is done.", format="int32", minimum=0, maximum=100)
    ] = None
    estimated_remaining_seconds: Annotated[
        int | None,
        describe("The estimated time until the end of the training.", format="int32", minimum=0, maximum=INT32_MAX),
    ] = None
    metrics: Annotated[tuple[ReportedMetric, ...], describe("The current metrics.", maxItems=MAX_REPORTED_METRICS)] = ()
    last_updated_time: Annotated[
        str, describe("When the program made the report, by its own clock.", format="date-time")
    ] = ""


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    trainer_status: TrainerStatus | None = None


_decode = msgspec.json.Decoder(_Report).decode


def report_path(namespace: str, name: str) -> str:
    """Returns the path to which the programs of a job report."""
    return _PATH.format(namespace, name)


def report_audience(namespace: str, name: str) -> str:
    """Returns the audience that the token of a report must have."""
    return _AUDIENCE.format(namespace, name)


def job_of_path(path: str) -> tuple[str, str] | None:
    """Returns the namespace and name of the job in a path; None if it is not the path of a job."""
    match = _TARGET.fullmatch(path)
    return (match[1], match[2]) if match and matches(A_NAME["pattern"], match[2]) else None


def decode_report(body: bytes, now: datetime) -> TrainerStatus | None:
    """Returns the report in the body of a request; None if the body has no `trainerStatus`.

    Its time is in whole seconds in UTC, and `now` if the report has none. Raises ReportError.
    """
    try:
        status = _decode(body).trainer_status
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"the body is not a report: {error}") from None
    if status is None:
        return None
    problem = next(limit_violations(status, "trainerStatus"), None)
    if problem is not None:
        raise ReportError(problem)
    return replace(status, last_updated_time=format_time(_moment(status.last_updated_time, now)))


def _moment(text: str, now: datetime) -> datetime:
    if not text:
        return now
    try:
        moment = datetime.fromisoformat(text)
        return (moment.replace(tzinfo=moment.tzinfo or UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ReportError("trainerStatus.lastUpdatedTime: must be a time such as 2026-01-31T12:00:00Z") from None
