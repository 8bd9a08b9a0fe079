"""The rules of kube/course.py: which request follows which outcome."""

import pytest

from tfjob_controller.kube.course import PAGE_SIZE, Course, Mode
from tfjob_controller.kube.errors import ApiError

GONE = ApiError(410, "Expired", "too old resource version: 5 (7)")
TOO_LARGE = ApiError(
    504, "Timeout", "Too large resource version: 9, current: 5", cause_reasons=["ResourceVersionTooLarge"]
)
LOST = ApiError(0, "ConnectionBroken", "the stream broke off")

WATCH = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "400"}
STREAM = WATCH | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def watching(version: int = 5) -> Course:
    course = Course()
    course.listed(version)
    return course


def paging() -> Course:
    course = Course()
    course.failed(ApiError(422, "Invalid", "sendInitialEvents is forbidden"))
    return course


def test_it_begins_with_a_streaming_list_of_the_newest() -> None:
    course = Course()
    assert course.mode is Mode.STREAM
    assert course.query(400) == STREAM


def test_a_list_is_followed_by_a_watch_from_its_version() -> None:
    assert watching(5).query(400) == WATCH | {"resourceVersion": "5"}


def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    course = watching(5)
    course.heard(8)
    assert course.query(400) == WATCH | {"resourceVersion": "8"}


@pytest.mark.parametrize("status", [400, 405, 422, 501])
def test_a_server_that_does_not_understand_streaming_lists_is_asked_for_pages(status: int) -> None:
    course = Course()
    course.failed(ApiError(status, "", "what?"))
    assert course.query(0) == {"limit": str(PAGE_SIZE), "resourceVersion": "0"}
    assert course.query(0, "token") == {"limit": str(PAGE_SIZE), "continue": "token"}


def test_a_streaming_list_that_is_twice_cut_short_is_taken_in_pages() -> None:
    course = Course()
    course.failed(LOST, opened=True)
    assert course.mode is Mode.STREAM
    course.failed(LOST, opened=True)
    assert course.mode is Mode.LIST


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(0, "NotConnected", "connection refused"), id="connection refused"),
        pytest.param(ApiError(429, "TooManyRequests", "slow down"), id="429"),
        pytest.param(ApiError(500, "InternalError", "oops"), id="500"),
        pytest.param(ApiError(503, "ServiceUnavailable", "soon"), id="503"),
        pytest.param(ApiError(401, "Unauthorized", "who?"), id="401"),
        pytest.param(ApiError(403, "Forbidden", "no"), id="403"),
    ],
)
@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_what_passes_is_tried_again_as_it_was_without_a_relist(mode: Mode, error: ApiError) -> None:
    course = {Mode.STREAM: Course, Mode.LIST: paging, Mode.WATCH: watching}[mode]()
    before = course.query(400)
    course.failed(error)
    assert (course.mode, course.query(400)) == (mode, before)


def test_a_watch_that_breaks_goes_on_from_the_last_version() -> None:
    course = watching(5)
    course.failed(LOST, opened=True)
    assert course.query(400) == WATCH | {"resourceVersion": "5"}


def test_an_expired_watch_lists_anew_at_least_what_was_seen() -> None:
    course = watching(5)
    course.failed(GONE)
    assert course.query(400) == STREAM | {"resourceVersion": "5"}


@pytest.mark.parametrize("error", [GONE, TOO_LARGE], ids=["410", "too large"])
def test_a_version_that_even_a_list_refuses_is_forgotten(error: ApiError) -> None:
    course = watching(5)
    course.failed(GONE)
    course.failed(error)
    assert course.query(400) == STREAM


@pytest.mark.parametrize("words", [TOO_LARGE, ApiError(504, "Timeout", "Too large resource version: 9, current: 5")])
def test_a_too_large_version_is_known_by_its_cause_or_its_words(words: ApiError) -> None:
    course = watching(9)
    course.failed(words)
    assert course.mode is Mode.STREAM


def test_a_relist_in_pages_asks_for_at_least_what_was_seen_and_unpaged() -> None:
    course = watching(5)
    course.failed(GONE)
    course.failed(ApiError(422, "Invalid", "forbidden"))
    assert course.query(0) == {"resourceVersion": "5"}


def test_a_list_in_pages_that_expires_asks_for_the_newest() -> None:
    course = paging()
    course.failed(GONE)
    assert course.query(0) == {"limit": str(PAGE_SIZE)}


def test_a_successful_list_makes_versions_useful_again() -> None:
    course = watching(5)
    course.failed(GONE)
    course.failed(GONE)
    course.listed(20)
    course.failed(GONE)
    assert course.query(400) == STREAM | {"resourceVersion": "20"}


def test_a_kind_that_went_away_is_listed_when_it_comes_back() -> None:
    course = watching(5)
    course.failed(ApiError(404, "NotFound", "the server could not find the requested resource"))
    assert course.mode is Mode.STREAM


def test_a_change_that_the_server_cannot_show_is_passed_by_a_list() -> None:
    course = watching(5)
    course.failed(ApiError(500, "InternalError", "unable to decode"), opened=True)
    assert course.mode is Mode.STREAM


def test_one_silence_is_a_lost_connection_two_are_a_server_that_does_not_know_the_version() -> None:
    course = watching(5)
    course.failed(LOST, opened=True, silent=True)
    assert course.mode is Mode.WATCH
    course.failed(LOST, opened=True, silent=True)
    assert course.mode is Mode.STREAM


def test_anything_heard_ends_a_silence() -> None:
    course = watching(5)
    course.failed(LOST, opened=True, silent=True)
    course.heard(6)
    course.failed(LOST, opened=True, silent=True)
    assert course.mode is Mode.WATCH
