"""The rules of kube/events/correlator.py and pendingwrites.py, without a server and without threads.

eventcontract.py has the usual case.
"""

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.events.correlator import Correlator, truncate_utf8
from tfjob_controller.kube.events.series import ObjectReference, Observation, Write

JOB = ObjectReference("kubeflow.org/v1alpha1", "TFJob", "team", "train", "uid-1", "17")


class Desk:
    """A correlator, and somebody who sends what it says."""

    def __init__(self) -> None:
        self.clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.correlator = Correlator(self.clock, random.Random(1))

    def report(
        self,
        note: str = "it is so",
        *,
        times: int = 1,
        reason: str = "Because",
        action: str = "Do",
        type_: str = "Normal",
        regarding: ObjectReference = JOB,
        related: ObjectReference | None = None,
    ) -> None:
        for _ in range(times):
            self.correlator.observe(Observation(regarding, type_, reason, note, action, self.clock.now(), related))

    def take(self) -> list[Write]:
        """All that is to be written now; none of it answered."""
        return list(iter(self.correlator.next_write, None))

    def writes(self) -> Iterator[Write]:
        """Each successful as soon as the next one is asked for."""
        while (write := self.correlator.next_write()) is not None:
            yield write
            self.correlator.record_success(write)

    def send(self, error: ApiError | None = None) -> list[str]:
        """Send what is to be written now, with the same answer for each: `create note x2`."""
        sent = []
        while (write := self.correlator.next_write()) is not None:
            word = "create" if write.is_create else "patch"
            sent.append(f"{word} {write.series.note} x{write.count}")
            if error is None:
                self.correlator.record_success(write)
            else:
                self.correlator.record_failure(write, error)
        return sent

    def write(self) -> None:
        """Reports an event that is written at once."""
        self.report()
        self.send()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.fixture
def desk() -> Desk:
    return Desk()


REFUSED_CONNECTION = ApiError(NO_RESPONSE, "NotConnected", "refused")
LOST_ANSWER = ApiError(NO_RESPONSE, "Timeout", "no answer", outcome_unknown=True)
SERVER_FAULT = ApiError(500, "InternalError", "etcd")
CONFLICT = ApiError(409, "Conflict", "somebody else wrote")
OVERLOAD = ApiError(429, "TooManyRequests", "slow down")


class TestSeries:
    def test_further_repeats_are_written_together_ten_seconds_after_the_last_time(self, desk: Desk) -> None:
        desk.write()
        desk.write()
        for _ in range(9):
            desk.pass_time(1.0)
            desk.report()
            assert desk.send() == []
        desk.pass_time(1.0)
        assert desk.send() == ["patch it is so x11"]

    def test_it_ends_when_it_was_silent_for_six_minutes(self, desk: Desk) -> None:
        desk.write()
        desk.pass_time(359.9)
        desk.report()
        assert desk.send() == ["patch it is so x2"]
        desk.pass_time(360.0)
        desk.report()
        assert desk.send() == ["create it is so x1"]

    def test_what_is_not_written_when_it_ends_is_written_then_also_without_a_token(self, desk: Desk) -> None:
        desk.write()
        for number in range(30):
            desk.report(reason=f"Reason{number}")
        desk.report(times=7)
        desk.send()
        desk.pass_time(359.9)
        assert desk.send() == []
        desk.pass_time(0.1)
        assert desk.send() == ["patch it is so x8"]
        assert desk.correlator.pending == 0

    def test_each_ends_by_itself(self, desk: Desk) -> None:
        desk.report("a")
        desk.report("b")
        desk.send()
        desk.pass_time(200.0)
        desk.report("a")
        desk.send()
        desk.pass_time(200.0)
        desk.report("b")
        desk.report("a")
        assert sorted(desk.send()) == ["create b x1", "patch a x3"]

    @pytest.mark.parametrize(
        "difference",
        [
            pytest.param({"note": "other"}, id="note"),
            pytest.param({"reason": "Other"}, id="reason"),
            pytest.param({"action": "Other"}, id="action"),
            pytest.param({"type_": "Warning"}, id="type"),
            pytest.param({"related": JOB}, id="related"),
            pytest.param({"regarding": ObjectReference("v1", "Pod", "team", "train", "uid-1")}, id="kind"),
            pytest.param(
                {"regarding": ObjectReference("kubeflow.org/v1alpha1", "TFJob", "team", "train", "uid-2")}, id="uid"
            ),
        ],
    )
    def test_something_else_is_another_event(self, desk: Desk, difference: dict[str, str]) -> None:
        desk.report()
        desk.report(**difference)
        assert [write.count for write in desk.take()] == [1, 1]

    def test_the_same_object_in_another_state_is_the_same_object(self, desk: Desk) -> None:
        for version in ("17", "18"):
            desk.report(regarding=ObjectReference("v1", "TFJob", "team", "train", "uid-1", version))
        assert desk.send() == ["create it is so x2"]

    def test_rest_seconds_is_the_time_until_the_next_event_is_due(self, desk: Desk) -> None:
        assert desk.correlator.rest_seconds() is None
        desk.report()
        assert desk.correlator.rest_seconds() == 0.0
        desk.send()
        assert desk.correlator.rest_seconds() == 360.0  # to forget it
        desk.write()
        desk.pass_time(4.0)
        desk.report()
        assert desk.correlator.rest_seconds() == 6.0
        desk.pass_time(6.0)
        desk.send()
        desk.pass_time(354.0)
        assert desk.correlator.rest_seconds() == 0.0
        desk.send()
        assert desk.correlator.rest_seconds() is None


class TestSimilarEvents:
    def test_the_tenth_note_and_all_that_follow_become_one(self, desk: Desk) -> None:
        for number in range(1, 13):
            desk.report(f"Created job: {number}")
        assert desk.send() == [
            *[f"create Created job: {number} x1" for number in range(1, 10)],
            "create (combined from similar events): Created job: 10 x3",
        ]

    def test_notes_seen_before_still_count_for_themselves(self, desk: Desk) -> None:
        for number in range(1, 11):
            desk.report(f"{number}")
        desk.send()
        desk.report("3")
        assert desk.send() == ["patch 3 x2"]

    def test_after_ten_minutes_without_one_they_are_distinguished_again(self, desk: Desk) -> None:
        for number in range(1, 11):
            desk.report(f"{number}")
        desk.send()
        desk.pass_time(600.1)
        desk.report("new")
        assert desk.send() == ["create new x1"]

    def test_other_reasons_are_not_similar(self, desk: Desk) -> None:
        for number in range(1, 11):
            desk.report(f"{number}")
        desk.report("other", reason="Other")
        assert desk.send()[-1] == "create other x1"


class TestSpam:
    def test_an_object_gets_twenty_five_events_and_one_every_five_minutes(self, desk: Desk) -> None:
        for number in range(40):
            desk.report(reason=f"Reason{number}")
        assert len(desk.send()) == 25
        assert desk.correlator.counts.spam == 15
        desk.pass_time(299.9)
        desk.report(reason="Late")
        assert desk.send() == []
        desk.pass_time(0.1)
        desk.report(reason="Late")
        assert desk.send() == ["create it is so x1"]

    def test_warnings_and_other_objects_have_their_own(self, desk: Desk) -> None:
        for number in range(40):
            desk.report(reason=f"Reason{number}")
        desk.send()
        desk.report("bad", type_="Warning")
        desk.report("other", regarding=ObjectReference("v1", "Pod", "team", "p", "uid-9"))
        assert desk.send() == ["create bad x1", "create other x1"]

    def test_one_that_repeats_for_ever_leaves_five_for_others(self, desk: Desk) -> None:
        written = 0
        for _ in range(60):
            desk.report()
            written += len(desk.send())
            desk.pass_time(10.0)
        assert written <= 25 - 5 + 600 / 300 + 1
        for number in range(5):
            desk.report(reason=f"Reason{number}")
        assert len([line for line in desk.send() if line.startswith("create")]) == 5

    def test_its_count_is_written_as_soon_as_there_is_a_token_again(self, desk: Desk) -> None:
        for _ in range(60):
            desk.write()
            desk.pass_time(10.0)
        desk.report()
        assert desk.correlator.pending == 1
        for _ in range(30):
            desk.pass_time(10.0)
            if sent := desk.send():
                break
        assert sent == ["patch it is so x61"]

    def test_a_second_try_costs_no_second_token(self, desk: Desk) -> None:
        for number in range(25):
            desk.report(reason=f"Reason{number}")
        assert len(desk.send(SERVER_FAULT)) == 25
        desk.pass_time(10.0)
        assert len(desk.send()) == 25


class TestFailures:
    @pytest.mark.parametrize("error", [REFUSED_CONNECTION, LOST_ANSWER, SERVER_FAULT, CONFLICT])
    def test_transient_errors_are_retried_with_growing_delays(self, desk: Desk, error: ApiError) -> None:
        desk.report()
        rests = []
        for _ in range(6):
            assert desk.send(error) == ["create it is so x1"]
            rests.append(desk.correlator.rest_seconds() or 0.0)
            desk.pass_time(rests[-1])
        assert 0.75 <= rests[0] <= 1.0
        assert max(rests) <= 10.0
        if error is not REFUSED_CONNECTION:
            assert rests[4] > rests[1] > rests[0]
        assert desk.send() == ["create it is so x1"]

    def test_after_twelve_tries_an_event_is_dropped_and_the_next_one_starts_again(self, desk: Desk) -> None:
        desk.report()
        for _ in range(12):
            assert len(desk.send(SERVER_FAULT)) == 1
            desk.pass_time(10.0)
        assert desk.send() == []
        assert desk.correlator.counts.given_up == 1
        desk.report()
        assert desk.send() == ["create it is so x1"]

    def test_a_server_that_cannot_be_reached_is_waited_for(self, desk: Desk) -> None:
        desk.report()
        for _ in range(100):
            desk.send(REFUSED_CONNECTION)
            desk.pass_time(10.0)
        assert desk.send() == ["create it is so x1"]

    @pytest.mark.parametrize("error", [REFUSED_CONNECTION, LOST_ANSWER, OVERLOAD])
    def test_a_server_that_does_not_answer_is_asked_by_one_event_at_a_time(self, desk: Desk, error: ApiError) -> None:
        for number in range(10):
            desk.report(reason=f"Reason{number}")
        assert len(desk.send(error)) == 1
        desk.pass_time(1.0)
        assert len(desk.send(error)) == 1
        desk.pass_time(20.0)
        assert len(desk.send()) == 10

    def test_a_server_that_does_not_respond_is_polled_at_growing_intervals(self, desk: Desk) -> None:
        for number in range(10):
            desk.report(reason=f"Reason{number}")
        rests = []
        for _ in range(5):
            desk.send(LOST_ANSWER)
            rests.append(desk.correlator.rest_seconds() or 0.0)
            desk.pass_time(rests[-1])
        assert rests[4] > rests[2] > rests[0]
        desk.send()
        desk.report(reason="Other")
        desk.send(LOST_ANSWER)
        assert (desk.correlator.rest_seconds() or 0.0) <= 1.0

    def test_tries_are_counted_for_each_write(self, desk: Desk) -> None:
        desk.report()
        for _ in range(3):
            for _ in range(11):
                desk.send(SERVER_FAULT)
                desk.pass_time(10.0)
            assert len(desk.send()) == 1
            desk.report()
            desk.pass_time(10.0)
        assert desk.correlator.counts.given_up == 0

    def test_the_end_of_an_old_series_does_not_touch_its_successor(self, desk: Desk) -> None:
        desk.write()
        desk.report()
        desk.pass_time(360.0)
        desk.report()  # a new series, while the old one has a count to write
        old = desk.correlator.next_write()
        assert old is not None
        assert not old.is_create
        desk.correlator.record_failure(old, ApiError(403, "Forbidden", "no"))
        assert desk.send() == ["create it is so x1"]
        desk.report()
        assert desk.send() == ["patch it is so x2"]

    def test_a_fault_with_one_event_holds_up_no_other(self, desk: Desk) -> None:
        desk.report(reason="Bad")
        write = desk.correlator.next_write()
        assert write is not None
        desk.correlator.record_failure(write, SERVER_FAULT)
        desk.report("good")
        assert desk.send() == ["create good x1"]

    @pytest.mark.parametrize("status", [429, 503])
    def test_the_servers_retry_after_is_respected(self, desk: Desk, status: int) -> None:
        desk.report()
        desk.send(ApiError(status, "", "slow down", retry_after_seconds=42.0))
        assert desk.correlator.rest_seconds() == 42.0

    @pytest.mark.parametrize(
        "error",
        [
            pytest.param(ApiError(403, "Forbidden", "no", cause_reasons=["NamespaceTerminating"]), id="terminating"),
            pytest.param(ApiError(404, "NotFound", "no such namespace"), id="namespace is gone"),
            pytest.param(ApiError(422, "Invalid", "no"), id="invalid"),
        ],
    )
    def test_what_will_not_pass_is_given_up(self, desk: Desk, error: ApiError) -> None:
        desk.report()
        assert len(desk.send(error)) == 1
        desk.pass_time(1000.0)
        assert desk.send() == []
        assert (desk.correlator.counts.refused, desk.correlator.pending) == (1, 0)

    def test_an_event_that_has_vanished_is_recreated_with_its_count(self, desk: Desk) -> None:
        desk.write()
        desk.report()
        write = desk.correlator.next_write()
        assert write is not None
        desk.correlator.record_failure(write, ApiError(404, "NotFound", "gone"))
        assert desk.send() == ["create it is so x2"]

    def test_a_create_that_was_carried_out_though_its_answer_was_lost_is_written(self, desk: Desk) -> None:
        desk.report()
        desk.send(LOST_ANSWER)
        desk.report()
        desk.pass_time(1.0)
        write = desk.correlator.next_write()
        assert write is not None
        assert write.is_create
        desk.correlator.record_failure(write, ApiError(409, "AlreadyExists", "exists"))
        assert desk.send() == ["patch it is so x2"]  # what the first create did not yet say


class TestFlush:
    def test_all_that_waits_is_due(self, desk: Desk) -> None:
        desk.report("a")
        desk.send()
        desk.report("a")
        desk.send()
        desk.report("a")
        desk.report("b", reason="Other")
        desk.send(SERVER_FAULT)
        assert desk.send() == []
        desk.correlator.flush()
        assert sorted(desk.send()) == ["create b x1", "patch a x3"]
        assert desk.correlator.pending == 0

    def test_counts_need_no_token_then(self, desk: Desk) -> None:
        for _ in range(60):
            desk.write()
            desk.pass_time(10.0)
        desk.send()
        desk.report(times=3)
        desk.pass_time(20.0)
        assert desk.send() == []
        desk.correlator.flush()
        assert desk.send() == ["patch it is so x63"]

    def test_a_count_that_grew_while_it_was_written_is_due_too(self, desk: Desk) -> None:
        desk.report(times=2)
        desk.send()
        desk.report()
        write = desk.correlator.next_write()
        assert write is not None
        desk.report()
        desk.correlator.flush()
        desk.correlator.record_success(write)
        assert desk.send() == ["patch it is so x4"]


class TestBounds:
    def test_what_is_remembered_is_bounded_and_nothing_counted_is_lost(self, desk: Desk) -> None:
        for number in range(5000):
            desk.report(times=2, regarding=ObjectReference("v1", "Pod", "team", f"pod-{number}", f"uid-{number}"))
            desk.send()
        assert len(desk.correlator._series) == 4096
        assert desk.correlator.pending == 0


class TestNamespaces:
    """A namespace with thousands of events neither stops, delays nor displaces those of others."""

    HOSTILE = 6000

    def flood(self, desk: Desk, times: int = 1) -> None:
        for number in range(self.HOSTILE):
            desk.report("flood", times=times, regarding=_pod("hostile", number))

    def test_they_take_turns_in_writing(self, desk: Desk) -> None:
        self.flood(desk)
        for number in range(3):
            desk.report(f"note {number}")
        written = [write.series.namespace for write in itertools.islice(desk.writes(), 6)]
        assert written == ["hostile", "team", "hostile", "team", "hostile", "team"]

    def test_one_that_fills_the_pending_writes_has_its_own_dropped(self, desk: Desk) -> None:
        desk.report("earlier")
        self.flood(desk)
        desk.report("later")
        sent = desk.send()
        assert [line for line in sent if "flood" not in line] == ["create earlier x1", "create later x1"]
        assert len(sent) == 4096
        assert desk.correlator.counts.full == self.HOSTILE + 2 - 4096

    def test_one_that_fills_the_series_ends_its_own(self, desk: Desk) -> None:
        desk.write()
        for number in range(self.HOSTILE):
            desk.report("flood", regarding=_pod("hostile", number))
            desk.send()
        desk.report()
        assert desk.send() == ["patch it is so x2"]

    def test_one_with_many_objects_resets_no_limit_of_others(self, desk: Desk) -> None:
        for number in range(30):
            desk.report(reason=f"Reason{number}")
        desk.send()
        self.flood(desk)
        desk.send()
        desk.report(reason="Late")
        assert desk.send() == []

    def test_one_with_many_objects_has_no_similar_events_of_others_forgotten(self, desk: Desk) -> None:
        for number in range(9):
            desk.report(f"{number}")
        desk.send()
        self.flood(desk)
        desk.send()
        desk.report("new")
        assert desk.send() == ["create (combined from similar events): new x1"]

    def test_one_whose_events_are_limited_by_the_server_holds_up_only_itself(self, desk: Desk) -> None:
        for number in range(10):
            desk.report("flood", regarding=_pod("hostile", number))
        write = desk.correlator.next_write()
        assert write is not None
        desk.correlator.record_failure(write, ApiError(429, "TooManyRequests", "limit", retry_after_seconds=60.0))
        desk.report()
        assert desk.send() == ["create it is so x1"]
        assert desk.correlator.rest_seconds() == 60.0


def _pod(namespace: str, number: int) -> ObjectReference:
    return ObjectReference("v1", "Pod", namespace, f"pod-{number}", f"{namespace}-{number}")


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        pytest.param("abc", 3, "abc", id="fits"),
        pytest.param("abcdefgh", 6, "abc...", id="cut"),
        pytest.param("äöü", 6, "äöü", id="bytes, fits"),
        pytest.param("äöüß", 6, "ä...", id="never half a character"),
        pytest.param("\ud800", 9, "?", id="what is no text"),
    ],
)
def test_shortened(text: str, limit: int, short: str) -> None:
    assert truncate_utf8(text, limit) == short


@pytest.mark.parametrize(
    ("object_name", "prefix"),
    [
        pytest.param("train", "train.", id="the object's"),
        pytest.param("a.b-c.d", "a.b-c.d.", id="a subdomain"),
        pytest.param("system:node", "event.", id="no name for an event"),
        pytest.param("x" * 250, "event.", id="too long"),
        pytest.param("", "event.", id="none"),
    ],
)
def test_the_event_s_name_is_one_that_the_api_takes(desk: Desk, object_name: str, prefix: str) -> None:
    desk.report(regarding=ObjectReference("v1", "Pod", "team", object_name))
    (write,) = desk.take()
    assert write.series.name.startswith(prefix)
    assert len(write.series.name) <= 253


def test_names_are_in_the_order_of_time(desk: Desk) -> None:
    for number in range(40):
        desk.report(reason=f"Reason{number}")
        desk.pass_time(1e-3 * (number % 4))
    names = [(write.series.first.reason, write.series.name) for write in desk.take()]
    in_time = sorted(names, key=lambda entry: int(entry[0].removeprefix("Reason")))
    assert len(names) > 10
    assert sorted(name for _, name in names) == [name for _, name in in_time]
