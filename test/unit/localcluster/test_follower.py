"""A watch goes on where it stood, and begins anew where it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from localcluster.api import Api, RefusedError
from localcluster.follower import Follower

END = {"k8s.io/initial-events-end": "true"}
ANEW: dict[str, str] = {}


class Diary:
    """What a reader is told, in words."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def list_begins(self) -> None:
        self.entries.append("list")

    def take(self, change: str, obj: dict[str, Any]) -> None:
        self.entries.append(f"{change} {obj['metadata']['name']}")

    def list_ends(self, bookmark: dict[str, Any]) -> None:
        self.entries.append(f"listed at {bookmark['metadata']['resourceVersion']}")


class World:
    """A follower without a server."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.follower = Follower(Api("https://127.0.0.1:1", ca=None), "/pods", self.diary)

    def tell(self, change: str, version: int, name: str = "", **meta: Any) -> None:
        self.follower.take(change, {"metadata": {"name": name, "resourceVersion": str(version), **meta}})

    def list(self, *names: str, at: int) -> None:
        assert self.follower.begin() == ANEW
        for name in names:
            self.tell("ADDED", 1, name)
        self.tell("BOOKMARK", at, annotations=END)


@pytest.fixture
def world() -> World:
    return World()


def test_the_reader_is_notified_of_the_begin_and_end_of_a_list(world: World) -> None:
    world.list("a", "b", at=7)
    world.tell("MODIFIED", 8, "a")
    assert world.diary.entries == ["list", "ADDED a", "ADDED b", "listed at 7", "MODIFIED a"]
    assert world.follower.is_listed.is_set()


def test_a_watch_that_breaks_goes_on_after_what_came_last(world: World) -> None:
    world.list("a", at=7)
    world.tell("MODIFIED", 8, "a")
    assert world.follower.begin() == {"resourceVersion": "8", "sendInitialEvents": "false"}
    world.tell("BOOKMARK", 12)
    assert world.follower.begin()["resourceVersion"] == "12"
    assert world.diary.entries.count("list") == 1


def test_a_list_that_breaks_begins_again(world: World) -> None:
    world.follower.begin()
    world.tell("ADDED", 5, "a")
    assert not world.follower.is_listed.is_set()
    world.list("a", at=7)
    assert world.diary.entries == ["list", "ADDED a", "list", "ADDED a", "listed at 7"]


@pytest.mark.parametrize(("status", "gaps"), [(410, 1), (500, 0)], ids=["forgotten", "another error"])
def test_only_a_place_that_the_server_has_forgotten_is_given_up(world: World, status: int, gaps: int) -> None:
    world.list("a", at=7)
    world.follower.refused(RefusedError(status, {"message": "no"}))
    assert (world.follower.begin() == ANEW) == bool(gaps)
    assert world.follower.gaps == gaps
    assert "no" in world.follower.problem
