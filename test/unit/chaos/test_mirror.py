"""What the owners of gangs know of the cluster, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.mirror import Mirror
from localcluster.api import Api


class World:
    def __init__(self) -> None:
        self.changed: list[str] = []
        api = Api("https://127.0.0.1:1", ca=None)
        self.mirror = Mirror(api, "/pods", lambda obj: obj["metadata"].get("gang"), self.changed.append)

    def tell(self, kind: str, name: str = "", gang: str | None = "g", **more: Any) -> None:
        meta = {"name": name, "resourceVersion": "1", **({"gang": gang} if gang else {}), **more}
        self.mirror.take(kind, {"metadata": meta})


@pytest.fixture
def world() -> World:
    return World()


def test_objects_are_known_by_their_group_until_they_are_deleted(world: World) -> None:
    world.tell("ADDED", "a")
    world.tell("ADDED", "b")
    world.tell("DELETED", "a")
    assert list(world.mirror.of("g")) == ["b"]
    assert world.changed == ["g", "g", "g"]


def test_what_belongs_to_no_group_is_of_no_interest(world: World) -> None:
    world.tell("ADDED", "a", gang=None)
    assert world.changed == []


def test_what_a_second_list_does_not_hold_has_gone_meanwhile(world: World) -> None:
    world.tell("ADDED", "a")
    world.tell("ADDED", "b", gang="other")
    world.mirror.list_begins()
    world.tell("ADDED", "b", gang="other")
    assert list(world.mirror.of("g")) == ["a"]
    world.changed.clear()
    world.mirror.list_ends({"metadata": {"resourceVersion": "2"}})
    assert not world.mirror.of("g")
    assert list(world.mirror.of("other")) == ["b"]
    assert world.changed == ["g"]
