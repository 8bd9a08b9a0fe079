"""The rules of kube/cache/listwatch.py: which request follows which outcome. More of them are in test_reflector.py."""

import pytest

from tfjob_controller.kube.cache.listwatch import PAGE_SIZE, ListWatchState, RequestMode
from tfjob_controller.kube.errors import ApiError

GONE = ApiError(410, "Expired", "too old resource version: 5 (7)")
TOO_LARGE = ApiError(
    504, "Timeout", "Too large resource version: 9, current: 5", cause_reasons=["ResourceVersionTooLarge"]
)
LOST = ApiError(0, "ConnectionBroken", "the stream broke off")

WATCH = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "400"}
STREAM = WATCH | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def watching(version: int = 5) -> ListWatchState:
    state = ListWatchState()
    state.record_list(version)
    return state


def paging() -> ListWatchState:
    state = ListWatchState()
    state.record_failure(ApiError(422, "Invalid", "sendInitialEvents is forbidden"))
    return state


def test_a_list_is_followed_by_a_watch_from_its_version() -> None:
    assert watching(5).query(400) == WATCH | {"resourceVersion": "5"}


@pytest.mark.parametrize("status", [400, 405, 422, 501])
def test_a_server_without_streaming_lists_gets_paged_requests(status: int) -> None:
    state = ListWatchState()
    state.record_failure(ApiError(status, "", "what?"))
    assert state.query(0) == {"limit": str(PAGE_SIZE), "resourceVersion": "0"}
    assert state.query(0, "token") == {"limit": str(PAGE_SIZE), "continue": "token"}


@pytest.mark.parametrize(
    ("state", "error"),
    [
        pytest.param(ListWatchState(), ApiError(0, "NotConnected", "connection refused"), id="streaming list"),
        pytest.param(paging(), ApiError(500, "InternalError", "oops"), id="list"),
        pytest.param(watching(), ApiError(403, "Forbidden", "no"), id="watch"),
    ],
)
def test_what_passes_is_tried_again_as_it_was_without_a_relist(state: ListWatchState, error: ApiError) -> None:
    mode, query = state.mode, state.query(400)
    state.record_failure(error)
    assert (state.mode, state.query(400)) == (mode, query)


@pytest.mark.parametrize("error", [GONE, TOO_LARGE], ids=["410", "too large"])
def test_a_version_that_even_a_list_refuses_is_forgotten(error: ApiError) -> None:
    state = watching(5)
    state.record_failure(GONE)
    state.record_failure(error)
    assert state.query(400) == STREAM


@pytest.mark.parametrize("words", [TOO_LARGE, ApiError(504, "Timeout", "Too large resource version: 9, current: 5")])
def test_a_too_large_version_is_recognized_by_its_cause_or_message(words: ApiError) -> None:
    state = watching(9)
    state.record_failure(words)
    assert state.mode is RequestMode.STREAM


def test_a_paged_relist_requests_at_least_the_seen_version_without_pages() -> None:
    state = watching(5)
    state.record_failure(GONE)
    state.record_failure(ApiError(422, "Invalid", "forbidden"))
    assert state.query(0) == {"resourceVersion": "5"}


def test_a_paged_list_that_expires_is_repeated_with_the_newest_version() -> None:
    state = paging()
    state.record_failure(GONE)
    assert state.query(0) == {"limit": str(PAGE_SIZE)}


def test_a_successful_list_makes_versions_useful_again() -> None:
    state = watching(5)
    state.record_failure(GONE)
    state.record_failure(GONE)
    state.record_list(20)
    state.record_failure(GONE)
    assert state.query(400) == STREAM | {"resourceVersion": "20"}


def test_a_kind_that_went_away_is_listed_when_it_comes_back() -> None:
    state = watching(5)
    state.record_failure(ApiError(404, "NotFound", "the server could not find the requested resource"))
    assert state.mode is RequestMode.STREAM


def test_a_change_that_the_server_cannot_show_is_passed_by_a_list() -> None:
    state = watching(5)
    state.record_failure(ApiError(500, "InternalError", "unable to decode"), opened=True)
    assert state.mode is RequestMode.STREAM


def test_any_received_event_ends_a_silence() -> None:
    state = watching(5)
    state.record_failure(LOST, opened=True, silent=True)
    state.record_progress(6)
    state.record_failure(LOST, opened=True, silent=True)
    assert state.mode is RequestMode.WATCH
