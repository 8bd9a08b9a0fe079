"""The rules of kube/cache/reflector.py, against a scripted server; `run` is called in the test's own thread."""

import random
from dataclasses import replace

import pytest

from helpers.scripted import Answer, PatientClock, ScriptedRequester
from helpers.things import THINGS, Thing, bookmark, error_line, line, page, thing, unreadable_line
from tfjob_controller.kube.cache.reflector import READ_TIMEOUT_SECONDS, Reflector
from tfjob_controller.kube.cache.watchdecoder import BookmarkDelta, DeleteDelta, Delta, ReplaceDelta, UpsertDelta
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Resource

A5, A7, B6 = thing("a", 5), thing("a", 7), thing("b", 6)
END6 = bookmark(6, ends_list=True)
REFUSED = ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")
MISSING = ApiError(404, "NotFound", "the server could not find the requested resource")
TIMED_OUT = ApiError(0, "Timeout", "the stream was silent for longer than its read time-out")


class Played:
    """A reflector that has run through a script."""

    def __init__(
        self, *answers: Answer, clock: PatientClock | None = None, kind: Resource = THINGS, **options: str
    ) -> None:
        self.clock = clock or PatientClock()
        self.clock.on_sleep = lambda: self.errors_at_rest.append(self.reflector.last_error)
        self.requester = ScriptedRequester(*answers)
        self.events: list[Delta[Thing]] = []
        self.errors_at_rest: list[str] = []
        self.reflector = Reflector(
            self.requester, kind, self.events.append, clock=self.clock, rng=random.Random(1), **options
        )
        self.requester.at_end = self.reflector.stop
        self.reflector.run()

    @property
    def versions(self) -> list[str]:
        """The version that each call asked for."""
        return [query.get("resourceVersion", "") for query in self.requester.asked]


def test_one_request_brings_the_list_and_what_follows_it() -> None:
    played = Played([line("ADDED", A5), END6, line("MODIFIED", A7), line("DELETED", thing("a", 8)), bookmark(9)])
    assert played.events == [
        ReplaceDelta((A5,), 6),
        UpsertDelta(A7),
        DeleteDelta("ns/a", 8, thing("a", 8)),
        BookmarkDelta(9),
    ]
    statistics = played.reflector.statistics()
    assert (statistics.streaming_lists, statistics.lists, statistics.watches) == (1, 0, 1)
    assert (statistics.events, statistics.bookmarks, statistics.last_resource_version) == (2, 1, 9)


def test_a_watch_requests_bookmarks_and_its_end_after_five_to_ten_minutes() -> None:
    played = Played([END6], [bookmark(7)], [bookmark(8)])
    assert all(query["allowWatchBookmarks"] == "true" for query in played.requester.asked)
    seconds = [int(query["timeoutSeconds"]) for query in played.requester.asked]
    assert all(300 <= second <= 600 for second in seconds)
    assert len(set(seconds)) > 1


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        pytest.param({}, "check that its CRD is installed:", id="a CRD"),
        pytest.param({"requirement": "Kubernetes 1.99"}, "that needs Kubernetes 1.99:", id="a part of Kubernetes"),
        pytest.param(
            {"alternative": "add --no-things"}, "check that its CRD is installed, or add --no-things:", id="a flag"
        ),
    ],
)
def test_a_kind_that_is_not_served_is_named_with_the_remedy(remedy: dict[str, str], words: str) -> None:
    played = Played(MISSING, kind=replace(THINGS, **remedy))
    (said,) = played.errors_at_rest
    assert f"the API server does not serve Thing example.com/v1; {words} " in said


def test_a_kind_is_unserved_until_a_request_for_it_succeeds() -> None:
    assert Played(MISSING).reflector.is_unserved
    assert not Played(MISSING, [END6]).reflector.is_unserved
    forbidden = ApiError(403, "Forbidden", "things is forbidden")
    assert not Played(MISSING, forbidden).reflector.is_unserved
    assert Played(MISSING, forbidden).reflector.is_forbidden
    assert not Played(forbidden, [END6]).reflector.is_forbidden


def test_selectors_go_with_every_request() -> None:
    played = Played(REFUSED, page(6), [bookmark(7)], label_selector="a=b", field_selector="spec.x=y", namespace="ns")
    assert all(
        (query["labelSelector"], query["fieldSelector"]) == ("a=b", "spec.x=y") for query in played.requester.asked
    )
    assert set(played.requester.paths) == {"/apis/example.com/v1/namespaces/ns/things"}


def test_a_watch_that_ends_in_order_is_followed_by_the_next_at_once_and_from_where_it_was() -> None:
    played = Played([END6, line("MODIFIED", A7)], [bookmark(8)], [bookmark(9)])
    assert played.versions == ["", "7", "8"]
    assert played.clock.slept == []


def test_a_server_without_streaming_lists_is_listed_in_pages_as_one_event() -> None:
    played = Played(REFUSED, page(6, A5, continue_="more"), page(6, B6), [line("MODIFIED", A7)])
    assert played.events == [ReplaceDelta((A5, B6), 6), UpsertDelta(A7)]
    assert played.versions == ["", "0", "", "6"]
    statistics = played.reflector.statistics()
    assert (statistics.lists, statistics.list_pages, statistics.streaming_lists) == (1, 2, 0)
    assert (statistics.failures, played.clock.slept) == (0, [])


def test_a_page_that_expires_starts_the_list_again_and_nothing_of_the_old_one_is_seen() -> None:
    gone = ApiError(410, "Expired", "the provided continue parameter is too old")
    played = Played(REFUSED, page(6, A5, continue_="more"), gone, page(9, B6))
    assert played.events == [ReplaceDelta((B6,), 9)]


@pytest.mark.parametrize(
    "expiry",
    [
        pytest.param(ApiError(410, "Expired", "too old resource version"), id="as an HTTP answer"),
        pytest.param([error_line(410, "Expired")], id="as an event under HTTP 200"),
    ],
)
def test_an_expired_watch_lists_again(expiry: Answer) -> None:
    played = Played([line("ADDED", A5), END6], expiry, [line("ADDED", B6), bookmark(9, ends_list=True)])
    assert played.events == [ReplaceDelta((A5,), 6), ReplaceDelta((B6,), 9)]
    assert played.versions == ["", "6", "6"]
    assert played.reflector.statistics().expired == 1
    assert played.clock.slept == []


def test_a_watch_that_expires_repeatedly_is_delayed() -> None:
    played = Played(*[[END6], [error_line(410, "Expired")]] * 4)
    assert played.reflector.statistics().expired == 4
    assert len(played.clock.slept) == 3


def test_a_lost_connection_is_watched_again_after_a_delay_without_a_list() -> None:
    lost = ApiError(0, "ConnectionBroken", "the stream broke off")
    played = Played([END6, line("ADDED", A7), lost], [line("MODIFIED", thing("a", 8))])
    assert played.events == [ReplaceDelta((), 6), UpsertDelta(A7), UpsertDelta(thing("a", 8))]
    assert played.versions == ["", "7"]
    assert 0.5 <= played.clock.slept[0] <= 1.5


def test_a_streaming_list_that_ends_before_its_end_is_no_list_and_after_two_it_is_taken_in_pages() -> None:
    cut: Answer = [line("ADDED", B6)]
    played = Played(cut, cut, page(6, A5))
    assert played.events == [ReplaceDelta((A5,), 6)]
    assert len(played.clock.slept) == 2


def test_a_broken_list_in_pages_never_reaches_the_sink() -> None:
    played = Played(REFUSED, page(6, A5, continue_="more"), ApiError(500, "InternalError", "oops"), page(6, A5, B6))
    assert played.events == [ReplaceDelta((A5, B6), 6)]


def test_an_answer_that_is_no_list_is_a_failure_like_any_other() -> None:
    played = Played(REFUSED, b"<html>", page(6, A5))
    assert played.events == [ReplaceDelta((A5,), 6)]


def test_a_server_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    played = Played([END6], ApiError(429, "TooManyRequests", "busy", retry_after_seconds=17.0), [bookmark(7)])
    assert played.clock.slept == [17.0]


def test_a_server_that_is_down_gets_fewer_and_fewer_requests() -> None:
    down = ApiError(0, "NotConnected", "connection refused")
    played = Played([END6], *[down] * 20, [bookmark(7)])
    assert played.versions == ["", *["6"] * 21]
    assert max(played.clock.slept) > 10.0
    assert sum(played.clock.slept) > 100.0


def test_a_watch_that_ends_at_once_without_an_event_is_delayed() -> None:
    played = Played([END6], [], [bookmark(7)])
    assert len(played.clock.slept) == 1


def test_a_silent_connection_is_given_up_and_after_the_second_the_list_is_taken_again() -> None:
    clock = PatientClock()

    def silence() -> None:
        clock.advance(READ_TIMEOUT_SECONDS)

    played = Played([END6], [silence, TIMED_OUT], [silence, TIMED_OUT], [bookmark(7, ends_list=True)], clock=clock)
    assert ["sendInitialEvents" in query for query in played.requester.asked] == [True, False, False, True]


def test_an_undecodable_object_costs_only_itself() -> None:
    played = Played([line("ADDED", A5), END6, unreadable_line("MODIFIED", "a", 7), line("ADDED", thing("b", 8))])
    assert played.events[-1] == UpsertDelta(thing("b", 8))
    assert played.reflector.statistics().undecodable == 1


def test_missing_rights_are_said_exactly_and_tried_again_until_they_are_there() -> None:
    error = ApiError(403, "Forbidden", 'things.example.com is forbidden: User "x" cannot watch resource "things"')
    played = Played(error, error, [END6])
    assert all("cannot watch things.example.com" in said and 'User "x"' in said for said in played.errors_at_rest)
    assert len(played.errors_at_rest) == 2
    assert played.reflector.statistics().streaming_lists == 1


def test_what_a_sink_raises_ends_run_and_the_next_run_lists() -> None:
    requester = ScriptedRequester([END6, line("ADDED", A7)], [bookmark(9, ends_list=True)])
    sink: list[Delta[Thing]] = []

    def take(event: Delta[Thing]) -> None:
        sink.append(event)
        if isinstance(event, UpsertDelta):
            raise RuntimeError("a bug")

    reflector = Reflector(requester, THINGS, take, clock=PatientClock(), rng=random.Random(1))
    requester.at_end = reflector.stop
    with pytest.raises(RuntimeError, match="a bug"):
        reflector.run()
    reflector.run()
    assert sink[-1] == ReplaceDelta((), 9)


def test_stop_ends_it_before_the_next_request() -> None:
    requester = ScriptedRequester([END6])
    reflector = Reflector(requester, THINGS, lambda event: reflector.stop(), clock=PatientClock(), rng=random.Random(1))
    reflector.run()
    assert len(requester.asked) == 1
