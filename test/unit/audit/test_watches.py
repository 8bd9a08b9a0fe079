"""What the auditor is told when a watch breaks, and the server has forgotten where it stood."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from audit.core import GANGS, PODS, RELISTED
from audit.order import Event
from audit.watches import Follower
from localcluster.api import Api

END = {"k8s.io/initial-events-end": "true"}


class World:
    """A follower that has listed the objects `a` and `b`."""

    def __init__(self, kind: str = PODS) -> None:
        self.kind = kind
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.follower = Follower(Api("https://127.0.0.1:1", ca=None), kind, self._events, threading.Event())
        self.list(a=1, b=2, at=3)

    def tell(self, change: str, name: str, version: int, **meta: Any) -> None:
        obj = {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), **meta}}
        self.follower.take(Event(self.kind, change, obj, 0.0))

    def list(self, *, at: int, **versions: int) -> None:
        self.follower.begin_list()
        for name, version in versions.items():
            self.tell("ADDED", name, version)
        self.tell("BOOKMARK", "", at, annotations=END)

    def heard(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = []
        while not self._events.empty():
            event = self._events.get()
            found.append((event.change, event.obj["metadata"]["name"], event.version))
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_list_is_what_is_there(world: World) -> None:
    assert world.heard() == [("ADDED", "a", 1), ("ADDED", "b", 2)]
    assert world.follower.is_listed.is_set()


def test_after_a_gap_only_what_is_another_is_told_and_that_nobody_saw_it(world: World) -> None:
    world.heard()
    world.list(a=1, b=7, c=8, at=9)
    assert world.heard() == [(RELISTED, "b", 7), (RELISTED, "c", 8)]


@pytest.mark.parametrize(("kind", "version"), [(PODS, 2), (GANGS, 9)])
def test_what_went_in_a_gap_went_at_its_begin_and_a_gang_at_its_end(kind: str, version: int) -> None:
    world = World(kind)
    world.heard()
    world.list(a=1, at=9)
    assert world.heard() == [("DELETED", "b", version)]


def test_changes_after_a_gap_are_seen_again(world: World) -> None:
    world.list(a=1, b=2, at=9)
    world.heard()
    world.tell("MODIFIED", "a", 10)
    world.tell("DELETED", "a", 11)
    assert world.heard() == [("MODIFIED", "a", 10), ("DELETED", "a", 11)]
