"""What is asked about pods that do not start, how rarely, and which Event is the reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from helpers.fakeclock import FakeClock
from helpers.scripted import Answer, ScriptedRequester
from tfjob_controller.controller.podevents import (
    MAX_ASKED,
    MAX_BYTES,
    PERIOD_SECONDS,
    REFUSED_SECONDS,
    RETENTION_SECONDS,
    PodEvents,
    ReportedEvent,
)
from tfjob_controller.jobs.evaluation.silence import newest_warning
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta

MOUNT = 'MountVolume.SetUp failed for volume "s" : secret "keys" not found'


def an_event(reason: str, second: int, note: str = "", type_: str = "Warning") -> dict[str, Any]:
    """Returns an Event as a kubelet writes it, which happened last in that second."""
    return {
        "metadata": {"name": reason.lower(), "namespace": "team"},
        "type": type_,
        "reason": reason,
        "note": note,
        "eventTime": None,
        "deprecatedLastTimestamp": f"2026-01-01T00:00:{second:02}Z",
    }


def listed(*events: dict[str, Any]) -> Answer:
    return [json.dumps({"metadata": {}, "items": events}).encode()]


FAILED_MOUNT = listed(an_event("FailedMount", 5, MOUNT))
WARNING = f"FailedMount: {MOUNT}"


def decoded(*events: dict[str, Any]) -> list[ReportedEvent]:
    return [msgspec.convert(event, ReportedEvent) for event in events]


def test_the_newest_warning_of_a_pod_is_asked_for_and_told() -> None:
    requester = ScriptedRequester(FAILED_MOUNT)
    assert PodEvents(requester, FakeClock()).warnings_of("team", ["pod"]) == {"pod": WARNING}
    assert requester.paths == ["/apis/events.k8s.io/v1/namespaces/team/events"]
    assert requester.asked == [{"fieldSelector": "regarding.uid=pod", "limit": "100"}]


UNMOUNTED = "Unable to attach or mount volumes: unmounted volumes=[s]: context deadline exceeded"


@pytest.mark.parametrize(
    ("events", "warning"),
    [
        pytest.param([], "", id="no event"),
        pytest.param([an_event("Pulling", 5, type_="Normal")], "", id="no warning"),
        pytest.param([an_event("FailedMount", 5, "b"), an_event("FailedMount", 4, "a")], "FailedMount: b", id="newest"),
        pytest.param([an_event("FailedMount", 5), an_event("Pulling", 6, type_="Normal")], "", id="mounted since"),
        pytest.param(
            [an_event("FailedScheduling", 5), an_event("Scheduled", 5, type_="Normal")], "", id="scheduled since"
        ),
        pytest.param(
            [an_event("FailedMount", 7, "a"), an_event("Pulled", 6, type_="Normal")], "FailedMount: a", id="after"
        ),
        pytest.param(
            [an_event("FailedMount", 4, "a"), an_event("FailedMount", 5, UNMOUNTED)], "FailedMount: a", id="specific"
        ),
        pytest.param([an_event("FailedMount", 5, UNMOUNTED)], f"FailedMount: {UNMOUNTED}", id="nothing more specific"),
        pytest.param(
            [an_event("FailedCreatePodSandBox", 5, "(combined from similar events): no\n\nnetwork")],
            "FailedCreatePodSandBox: no network",
            id="aggregated, on one line",
        ),
        pytest.param(
            [an_event("FailedCreate", 5, "quota"), an_event("SuccessfulCreate", 6, type_="Normal")], "", id="created"
        ),
    ],
)
def test_the_reason_is_the_newest_warning_that_is_not_obsolete(events: list[dict[str, Any]], warning: str) -> None:
    assert newest_warning(decoded(*events)) == warning


def test_an_event_of_the_newer_api_has_the_time_of_its_series() -> None:
    plain = an_event("FailedMount", 59) | {"deprecatedLastTimestamp": None, "eventTime": "2026-01-01T00:00:01.000001Z"}
    repeated = plain | {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:07.000001Z"}}
    assert [event.time[-2:] for event in decoded(plain, repeated)] == ["01", "07"]
    assert ReportedEvent(ObjectMeta(name="none")).time == ""


def test_a_pod_is_asked_about_once_a_period() -> None:
    clock = FakeClock()
    requester = ScriptedRequester(FAILED_MOUNT, listed(an_event("FailedAttachVolume", 50, "gone")))
    events = PodEvents(requester, clock)
    for _ in range(3):
        assert events.warnings_of("team", ["pod"]) == {"pod": WARNING}
    clock.advance(PERIOD_SECONDS)
    assert events.warnings_of("team", ["pod"]) == {"pod": "FailedAttachVolume: gone"}
    assert len(requester.asked) == 2


def test_a_thousand_pods_of_a_job_cost_a_few_requests() -> None:
    requester = ScriptedRequester(*[FAILED_MOUNT] * 1000)
    found = PodEvents(requester, FakeClock()).warnings_of("team", [f"pod-{index}" for index in range(1000)])
    assert [*found] == [f"pod-{index}" for index in range(MAX_ASKED)]
    assert len(requester.asked) == MAX_ASKED


def test_many_jobs_of_a_namespace_leave_requests_to_others() -> None:
    requester = ScriptedRequester(*[FAILED_MOUNT] * 1000)
    events = PodEvents(requester, FakeClock())
    for index in range(500):
        events.warnings_of("greedy", [f"pod-{index}"])
    assert len(requester.asked) < 50
    assert events.warnings_of("modest", ["pod"]) == {"pod": WARNING}


def test_all_namespaces_together_have_a_budget() -> None:
    requester = ScriptedRequester(*[FAILED_MOUNT] * 1000)
    events = PodEvents(requester, FakeClock())
    for index in range(500):
        events.warnings_of(f"team-{index}", ["pod"])
    assert len(requester.asked) == 50


def test_without_the_right_nothing_is_asked_for_some_minutes() -> None:
    clock = FakeClock()
    requester = ScriptedRequester(ApiError(403, "Forbidden", "events is forbidden"), FAILED_MOUNT)
    events = PodEvents(requester, clock)
    assert events.warnings_of("team", ["pod", "other"]) == {}
    clock.advance(REFUSED_SECONDS - 1)
    assert events.warnings_of("team", ["pod"]) == {}
    assert len(requester.asked) == 1
    clock.advance(1)
    assert events.warnings_of("team", ["pod"]) == {"pod": WARNING}


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ApiError(0, "Timeout", "no answer"), id="no response"),
        pytest.param([b"{" * MAX_BYTES], id="a response that was cut"),
    ],
)
def test_after_a_failure_the_last_warning_stays(failure: Answer) -> None:
    clock = FakeClock()
    events = PodEvents(ScriptedRequester(FAILED_MOUNT, failure, listed()), clock)
    assert events.warnings_of("team", ["pod"]) == {"pod": WARNING}
    clock.advance(PERIOD_SECONDS)
    assert events.warnings_of("team", ["pod"]) == {"pod": WARNING}
    clock.advance(PERIOD_SECONDS)
    assert events.warnings_of("team", ["pod"]) == {}


def test_a_warning_that_differs_only_by_generated_names_stays_the_same() -> None:
    clock = FakeClock()
    first, second = (
        listed(an_event("FailedCreate", 5, f'pods "a-{name}" is forbidden')) for name in ("8kzq2", "bcdfg")
    )
    events = PodEvents(ScriptedRequester(first, second), clock)
    before = events.warnings_of("team", ["job"])
    clock.advance(PERIOD_SECONDS)
    assert events.warnings_of("team", ["job"]) == before == {"job": 'FailedCreate: pods "a-8kzq2" is forbidden'}


def test_a_warning_is_forgotten_after_a_while() -> None:
    clock = FakeClock()
    events = PodEvents(ScriptedRequester(FAILED_MOUNT, ApiError(0, "Timeout", "no answer")), clock)
    events.warnings_of("team", ["pod"])
    clock.advance(RETENTION_SECONDS)
    assert events.warnings_of("team", ["pod"]) == {}
