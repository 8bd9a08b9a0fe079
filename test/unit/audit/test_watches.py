"""Tests of audit.watches: events after a watch whose resourceVersion the server has compacted."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from audit.core import GANGS, PODS, RELISTED
from audit.order import Event
from audit.watches import Kind


class WatchedKind:
    """A watched kind, of which the objects `a` and `b` have been listed."""

    def __init__(self, kind: str = PODS) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._kind = Kind(kind, self._events)
        self.list(a=1, b=2, at=3)

    def send(self, change: str, name: str, version: int, **meta: Any) -> None:
        self._kind.take(change, {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), **meta}})

    def begin_list(self) -> None:
        self._kind.list_begins()

    def end_list(self, at: int) -> None:
        self._kind.list_ends({"metadata": {"resourceVersion": str(at)}})

    def list(self, *, at: int, **versions: int) -> None:
        self.begin_list()
        for name, version in versions.items():
            self.send("ADDED", name, version)
        self.end_list(at)

    def received(self) -> list[tuple[str, str, int]]:
        events = [self._events.get() for _ in range(self._events.qsize())]
        return [(event.change, event.obj["metadata"]["name"], event.version) for event in events]


@pytest.fixture
def watched() -> WatchedKind:
    return WatchedKind()


def test_objects_of_the_first_list_are_reported_as_added(watched: WatchedKind) -> None:
    assert watched.received() == [("ADDED", "a", 1), ("ADDED", "b", 2)]


def test_after_a_gap_only_changed_objects_are_reported_and_marked_as_unobserved(watched: WatchedKind) -> None:
    watched.received()
    watched.list(a=1, b=7, c=8, at=9)
    assert watched.received() == [(RELISTED, "b", 7), (RELISTED, "c", 8)]


@pytest.mark.parametrize(("kind", "version"), [(PODS, 2), (GANGS, 9)])
def test_a_deletion_in_a_gap_counts_at_its_begin_and_that_of_a_gang_at_its_end(kind: str, version: int) -> None:
    watched = WatchedKind(kind)
    watched.received()
    watched.list(a=1, at=9)
    assert watched.received() == [("DELETED", "b", version)]


def test_changes_after_a_gap_are_reported(watched: WatchedKind) -> None:
    watched.list(a=1, b=2, at=9)
    watched.received()
    watched.send("MODIFIED", "a", 10)
    watched.send("DELETED", "a", 11)
    assert watched.received() == [("MODIFIED", "a", 10), ("DELETED", "a", 11)]
