"""The contract of kube/events.py on an API server in memory, and under faults."""

import threading

import pytest

from helpers.eventcontract import STOP_SECONDS, EventContract, Read, Wait
from helpers.fakeclock import FakeClock
from helpers.heldrequest import HeldRequest
from helpers.memoryapi import Fault, MemoryApi, no_answer, refusal, slow
from helpers.poll import eventually
from tfjob_controller.kube.events.recorder import MAX_QUEUED, EventRecorder
from tfjob_controller.kube.events.series import ObjectReference


@pytest.fixture
def requester() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def namespace() -> str:
    return "team"


class TestEvents(EventContract):
    @pytest.fixture
    def events(self, requester: MemoryApi, namespace: str) -> Read:
        def read() -> list[dict[str, object]]:
            found = [event for event in requester.list("events") if event["metadata"]["namespace"] == namespace]
            return [{**event, "metadata": dict(event["metadata"])} for event in found]

        return read

    def test_reporting_never_waits_for_the_server(
        self, recorder: EventRecorder, job: ObjectReference, requester: MemoryApi
    ) -> None:
        held = HeldRequest()
        requester.script.append(Fault(before=held))
        recorder.event(job, "Normal", "Running", "first")
        held.await_request()
        for number in range(MAX_QUEUED + 500):
            recorder.event(job, "Normal", "Running", f"note {number}")
        # Had one of them waited for the event that hangs, there would have been room for the next.
        assert recorder.statistics().dropped == 500
        assert recorder.statistics().queued == MAX_QUEUED
        held.release()

    def test_a_namespace_that_fills_the_queue_drops_no_events_of_others(
        self, recorder: EventRecorder, job: ObjectReference, requester: MemoryApi, events: Read, written: Wait
    ) -> None:
        held = HeldRequest()
        requester.script.append(Fault(before=held))
        hostile = ObjectReference("kubeflow.org/v1alpha1", "TFJob", "hostile", "flood", "uid-9", "17")
        recorder.event(hostile, "Normal", "Running", "first")
        held.await_request()
        recorder.event(job, "Normal", "Running", "it runs")
        for _ in range(MAX_QUEUED + 500):
            recorder.event(hostile, "Normal", "Running", "flood")
        recorder.event(job, "Normal", "Done", "it is done")
        assert recorder.statistics().dropped == 502
        held.release()
        written(4)
        assert sorted(str(event["note"]) for event in events()) == ["it is done", "it runs"]

    def test_a_passing_error_is_tried_again(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        requester: MemoryApi,
        clock: FakeClock,
        events: Read,
        written: Wait,
    ) -> None:
        requester.script.extend([refusal(500), no_answer(applied=False), no_answer(applied=True)])
        recorder.event(job, "Normal", "Running", "it runs")
        for tries in range(1, 4):
            eventually(lambda tries=tries: len(requester.written("POST")) == tries)
            clock.await_waiters(1)
            clock.advance(10.0)
        written(1)
        assert len(events()) == 1
        assert len({request.body["metadata"]["name"] for request in requester.written("POST")}) == 1

    def test_a_lasting_error_is_given_up_with_one_line_in_the_log(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        requester: MemoryApi,
        clock: FakeClock,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        requester.always = refusal(403, "Forbidden", "namespace is terminating", cause_reasons=["NamespaceTerminating"])
        recorder.event(job, "Normal", "Running", "it runs")
        eventually(lambda: recorder.statistics().counts.refused == 1)
        clock.await_waiters(1)
        clock.advance(100.0)
        clock.await_waiters(1)
        assert len(requester.sent) == 1
        lines = [line for line in capsys.readouterr().out.splitlines() if "event rejected" in line]
        assert len(lines) == 1
        assert "namespace is terminating" in lines[0]

    def test_requests_are_short_and_not_repeated_by_the_transport(
        self, recorder: EventRecorder, job: ObjectReference, requester: MemoryApi, written: Wait
    ) -> None:
        recorder.event(job, "Normal", "Running", "it runs")
        written(1)
        recorder.event(job, "Normal", "Running", "it runs")
        written(2)
        assert {request.timeout_seconds for request in requester.sent} == {5.0}
        assert {request.retry for request in requester.sent} == {False}

    def test_stop_writes_what_is_not_written_yet(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        requester: MemoryApi,
        events: Read,
        written: Wait,
    ) -> None:
        for count in (1, 2):
            recorder.event(job, "Normal", "Running", "it runs")
            written(count)
        for _ in range(5):  # their turn would come in ten seconds
            recorder.event(job, "Normal", "Running", "it runs")
        recorder.event(job, "Normal", "Done", "it is done")
        assert recorder.stop(STOP_SECONDS)
        assert sorted(event.get("series", {"count": 1})["count"] for event in events()) == [1, 7]

    def test_stop_takes_nothing_more(self, recorder: EventRecorder, job: ObjectReference, events: Read) -> None:
        recorder.stop(STOP_SECONDS)
        recorder.event(job, "Normal", "Running", "it runs")
        assert events() == []
        assert recorder.statistics().dropped == 1

    def test_stop_tries_again_until_its_time_is_over_and_says_what_is_lost(
        self, job: ObjectReference, requester: MemoryApi, clock: FakeClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "one")
        requester.always = slow(clock, 2.0, applied=False)
        requester.script.extend([refusal(500)] * 3)
        recorder.event(job, "Normal", "Running", "it runs")
        recorder.start()
        eventually(lambda: len(requester.sent) == 1)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(recorder.stop(4.0)))
        stopping.start()
        eventually(lambda: clock.advance(0.5) or stopped)
        stopping.join()
        assert stopped == [True]
        assert 2 <= len(requester.sent) <= 5
        assert [request.timeout_seconds <= 4.0 for request in requester.sent[1:]] == [True] * (len(requester.sent) - 1)
        assert "events not written before shutdown" in capsys.readouterr().out
        assert recorder.statistics().pending == 1

    def test_stop_does_not_wait_longer_for_a_delay_that_the_server_asked_for(
        self, job: ObjectReference, requester: MemoryApi, clock: FakeClock
    ) -> None:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "one")
        requester.always = refusal(503, retry_after_seconds=100.0)
        recorder.event(job, "Normal", "Running", "it runs")
        recorder.start()
        clock.await_waiters(1)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(recorder.stop(1.0)))
        stopping.start()
        eventually(lambda: len(requester.sent) == 2)  # a last try
        clock.await_waiters(1)
        clock.advance(1.0)
        stopping.join()
        assert stopped == [True]

    def test_stop_does_not_wait_longer_for_a_request_that_hangs(
        self, job: ObjectReference, requester: MemoryApi, clock: FakeClock
    ) -> None:
        held = HeldRequest()
        recorder = EventRecorder(requester, clock, "tfjob-controller", "one")
        requester.script.append(Fault(before=held))
        recorder.event(job, "Normal", "Running", "it runs")
        recorder.start()
        held.await_request()
        assert recorder.stop(0.05) is False
        held.release()
        clock.advance(1.0)
        eventually(lambda: not event_threads())

    def test_its_thread_has_a_name_and_ends(self, requester: MemoryApi, clock: FakeClock) -> None:
        recorder = EventRecorder(requester, clock, "tfjob-controller", "one")
        recorder.start()
        assert event_threads() == ["events"]
        assert recorder.stop(STOP_SECONDS)
        assert event_threads() == []

    def test_an_idle_recorder_wakes_only_to_drop_old_entries(
        self,
        recorder: EventRecorder,
        job: ObjectReference,
        requester: MemoryApi,
        clock: FakeClock,
        written: Wait,
    ) -> None:
        recorder.event(job, "Normal", "Running", "it runs")
        written(1)
        for _ in range(50):
            clock.await_waiters(1)
            clock.advance(60.0)
        clock.await_waiters(1)
        assert len(requester.sent) == 1


def event_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "events"]
