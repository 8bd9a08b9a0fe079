"""The rules of kube/cache/watchdecoder.py: what each line means in each state."""

import pytest

from helpers.things import Thing, bookmark, decode_thing, error_line, line, thing, unreadable_line
from tfjob_controller.kube.cache.watchdecoder import (
    BookmarkDelta,
    DeleteDelta,
    Delta,
    ObjectReader,
    ReplaceDelta,
    SkipDelta,
    UpsertDelta,
    WatchDecoder,
    version_of_delta,
)
from tfjob_controller.kube.errors import ApiError

A5 = thing("a", 5)
B6 = thing("b", 6)


def machine(*, initial_events: bool = False) -> WatchDecoder[Thing]:
    return WatchDecoder(ObjectReader(decode_thing), initial_events=initial_events)


@pytest.mark.parametrize(
    ("fed", "event"),
    [
        pytest.param(line("ADDED", A5), UpsertDelta(A5), id="added"),
        pytest.param(line("MODIFIED", A5), UpsertDelta(A5), id="modified"),
        pytest.param(line("DELETED", A5), DeleteDelta("ns/a", 5, A5), id="deleted, with the last state"),
        pytest.param(bookmark(9), BookmarkDelta(9), id="bookmark"),
        pytest.param(bookmark(9, ends_list=True), BookmarkDelta(9), id="a late end of initial events is a bookmark"),
        pytest.param(unreadable_line("MODIFIED", "a", 7), SkipDelta("ns/a", 7), id="undecodable: its old state stays"),
        pytest.param(
            unreadable_line("DELETED", "a", 7), DeleteDelta("ns/a", 7, None), id="a deletion needs only metadata"
        ),
    ],
)
def test_a_live_watch_turns_each_line_into_one_event(fed: bytes, event: Delta[Thing]) -> None:
    assert machine().feed(fed) == event


def test_initial_events_become_one_atomic_list() -> None:
    stream = machine(initial_events=True)
    assert [stream.feed(line("ADDED", obj)) for obj in (B6, A5)] == [None, None]
    assert stream.is_listing
    assert stream.feed(bookmark(9, ends_list=True)) == ReplaceDelta((B6, A5), 9)
    assert not stream.is_listing


def test_changes_during_the_initial_events_are_part_of_the_list() -> None:
    stream = machine(initial_events=True)
    for fed in (line("ADDED", A5), line("ADDED", B6), line("MODIFIED", thing("a", 7)), line("DELETED", thing("b", 8))):
        stream.feed(fed)
    assert stream.feed(bookmark(9, ends_list=True)) == ReplaceDelta((thing("a", 7),), 9)


def test_an_ordinary_bookmark_does_not_end_the_list() -> None:
    stream = machine(initial_events=True)
    assert stream.feed(bookmark(9)) is None
    assert stream.is_listing


def test_an_undecodable_object_of_a_list_is_named() -> None:
    stream = machine(initial_events=True)
    stream.feed(unreadable_line("ADDED", "a", 5))
    stream.feed(line("ADDED", B6))
    assert stream.feed(bookmark(9, ends_list=True)) == ReplaceDelta((B6,), 9, frozenset({"ns/a"}))


def test_after_the_list_the_same_stream_is_live() -> None:
    stream = machine(initial_events=True)
    stream.feed(bookmark(9, ends_list=True))
    assert stream.feed(line("ADDED", thing("c", 10))) == UpsertDelta(thing("c", 10))


def test_an_error_event_is_raised_as_what_its_status_says() -> None:
    with pytest.raises(ApiError, match="too old resource version") as caught:
        machine(initial_events=True).feed(error_line(410, "Expired", "too old resource version: 1 (2)"))
    assert caught.value.is_gone


@pytest.mark.parametrize(
    "fed",
    [
        pytest.param(b'{"type":"ADDED","object":{"metada', id="cut in the middle"),
        pytest.param(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}', id="no version"),
        pytest.param(b'{"type":"ADDED","object":{"size":1}}', id="no metadata"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"x"}}}', id="no version of an object"),
    ],
)
def test_a_line_that_is_no_event_is_a_broken_connection(fed: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        machine().feed(fed)
    assert caught.value.is_no_response


def test_undecodable_objects_are_counted() -> None:
    reader = ObjectReader(decode_thing)
    stream = WatchDecoder(reader, initial_events=False)
    stream.feed(unreadable_line("ADDED", "a", 1))
    stream.feed(line("ADDED", B6))
    stream.feed(unreadable_line("DELETED", "a", 3))
    assert reader.failures == 2


@pytest.mark.parametrize(
    ("event", "version"),
    [
        pytest.param(UpsertDelta(A5), 5, id="upsert: the object's"),
        pytest.param(DeleteDelta("ns/a", 7, A5), 7, id="deletion: when it happened"),
        pytest.param(ReplaceDelta((A5,), 9), 9, id="list: the list's"),
    ],
)
def test_a_watch_goes_on_after_the_last_event(event: Delta[Thing], version: int) -> None:
    assert version_of_delta(event) == version
