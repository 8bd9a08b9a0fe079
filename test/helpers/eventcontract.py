"""The contract of kube/events.py, for any API server: one in memory (unit) and a real one (integration)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.kube.events.recorder import EVENTS, EventRecorder
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import RealClock
from tfjob_controller.util.timestamps import format_micro_time

STOP_SECONDS = 10.0
Object = dict[str, Any]
Read = Callable[[], list[Object]]
Wait = Callable[[int], None]


class EventContract:
    """Subclass it where the fixtures `requester` and `namespace` say which API server is meant."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(RealClock().now(), is_strict=True)

    @pytest.fixture
    def recorder(self, requester: Requester, clock: FakeClock) -> Iterator[EventRecorder]:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "tfjob-controller-7d9f_abc")
        recorder.start()
        yield recorder
        assert recorder.stop(STOP_SECONDS)

    @pytest.fixture
    def job(self, namespace: str) -> ObjectReference:
        return ObjectReference("kubeflow.org/v1alpha1", "TFJob", namespace, "train", "uid-1", "17")

    @pytest.fixture
    def written(self, recorder: EventRecorder) -> Wait:
        """Waits until so many writes were confirmed."""

        def wait(count: int) -> None:
            eventually(lambda: recorder.statistics().counts.created + recorder.statistics().counts.patched >= count)

        return wait

    @pytest.fixture
    def events(self, requester: Requester, namespace: str) -> Read:
        raise NotImplementedError

    def test_an_event_says_all_that_was_reported(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        events: Read,
        clock: FakeClock,
        written: Wait,
    ) -> None:
        child = ObjectReference("batch/v1", "Job", job.namespace, "train-worker-0", "uid-2")
        recorder.event(job, "Normal", "SuccessfulCreate", "Created Job train-worker-0", "Create", related=child)
        written(1)
        (event,) = events()
        metadata = event.pop("metadata")
        assert metadata["name"].startswith("train.")
        assert metadata["namespace"] == job.namespace
        for nothing in ("series", "deprecatedSource"):
            assert not event.pop(nothing, None)
        assert event == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "eventTime": format_micro_time(clock.now()),
            "reportingController": "tfjob-controller",
            "reportingInstance": "tfjob-controller-7d9f_abc",
            "action": "Create",
            "reason": "SuccessfulCreate",
            "type": "Normal",
            "note": "Created Job train-worker-0",
            "regarding": {
                "apiVersion": "kubeflow.org/v1alpha1",
                "kind": "TFJob",
                "namespace": job.namespace,
                "name": "train",
                "uid": "uid-1",
                "resourceVersion": "17",
            },
            "related": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": job.namespace,
                "name": "train-worker-0",
                "uid": "uid-2",
            },
        }

    def test_repeats_become_a_series(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        events: Read,
        clock: FakeClock,
        written: Wait,
    ) -> None:
        recorder.event(job, "Warning", "FailedCreate", "exceeded quota", "Create")
        written(1)
        clock.advance(3.0)
        recorder.event(job, "Warning", "FailedCreate", "exceeded quota", "Create")
        written(2)
        seen = format_micro_time(clock.now())
        assert [event["series"] for event in events()] == [{"count": 2, "lastObservedTime": seen}]
        for _ in range(5):
            recorder.event(job, "Warning", "FailedCreate", "exceeded quota", "Create")
        clock.await_waiters(1)
        clock.advance(10.0)
        written(3)
        assert [event["series"] for event in events()] == [{"count": 7, "lastObservedTime": seen}]

    def test_an_event_that_was_deleted_is_made_anew_with_its_count(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        events: Read,
        requester: Requester,
        written: Wait,
        clock: FakeClock,
    ) -> None:
        recorder.event(job, "Normal", "Running", "it runs")
        written(1)
        requester.request("DELETE", EVENTS.path(job.namespace, events()[0]["metadata"]["name"]))
        clock.advance(3.0)
        recorder.event(job, "Normal", "Running", "it runs")
        written(2)
        (event,) = events()
        assert event["series"] == {"count": 2, "lastObservedTime": format_micro_time(clock.now())}
        assert event["eventTime"] == format_micro_time(clock.now() - timedelta(seconds=3))

    def test_repeats_before_the_first_write_are_in_it(
        self, requester: Requester, clock: FakeClock, job: ObjectReference, events: Read
    ) -> None:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "one")
        for _ in range(3):
            recorder.event(job, "Normal", "Running", "it runs")
        recorder.start()
        assert recorder.stop(STOP_SECONDS)
        assert [event["series"]["count"] for event in events()] == [3]

    def test_without_an_action_the_reason_is_the_action(
        self, recorder: EventRecorder, job: ObjectReference, events: Read, written: Wait
    ) -> None:
        recorder.event(job, "Normal", "Running", "it runs")
        written(1)
        assert events()[0]["action"] == "Running"

    @pytest.mark.parametrize(
        ("note", "stored"),
        [
            pytest.param("x" * 1024, "x" * 1024, id="just fits"),
            pytest.param("x" * 1025, "x" * 1021 + "...", id="too long"),
        ],
    )
    def test_a_long_note_is_cut_to_what_the_api_takes(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        events: Read,
        written: Wait,
        note: str,
        stored: str,
    ) -> None:
        recorder.event(job, "Normal", "Running", note)
        written(1)
        assert events()[0]["note"] == stored

    def test_long_words_are_cut_too(
        self, requester: Requester, clock: FakeClock, job: ObjectReference, events: Read
    ) -> None:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "i" * 300)
        recorder.event(job, "Normal", "R" * 300, "note", "A" * 300)
        recorder.start()
        assert recorder.stop(STOP_SECONDS)
        (event,) = events()
        assert {len(event[key]) for key in ("reason", "action", "reportingInstance")} == {128}

    def test_a_name_that_is_no_name_for_an_event_is_replaced(
        self, recorder: EventRecorder, namespace: str, events: Read, written: Wait
    ) -> None:
        recorder.event(ObjectReference("v1", "Thing", namespace, "UPPER:case"), "Normal", "Seen", "it is there")
        written(1)
        assert events()[0]["regarding"]["name"] == "UPPER:case"

    def test_what_is_about_an_object_without_a_namespace_is_in_default(
        self, recorder: EventRecorder, requester: Requester, written: Wait, namespace: str
    ) -> None:
        recorder.event(ObjectReference("v1", "Node", name=f"node-{namespace}"), "Normal", "Seen", "it is there")
        written(1)
        names = [
            event["regarding"]["name"]
            for event in json.loads(requester.request("GET", EVENTS.path("default")))["items"]
        ]
        assert f"node-{namespace}" in names
