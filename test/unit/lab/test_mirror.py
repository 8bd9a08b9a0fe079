"""Tests of lab.mirror: the objects of each group after watch events."""

from __future__ import annotations

from typing import Any

import pytest

from lab.mirror import Mirror
from localcluster.api import Api


class MirroredKind:
    def __init__(self) -> None:
        self.changed: list[str] = []
        api = Api("https://127.0.0.1:1", ca=None)
        self.mirror = Mirror(api, "/pods", lambda obj: obj["metadata"].get("gang"), self.changed.append)

    def send(self, kind: str, name: str = "", gang: str | None = "g", **more: Any) -> None:
        meta = {"name": name, "resourceVersion": "1", **({"gang": gang} if gang else {}), **more}
        self.mirror.take(kind, {"metadata": meta})


@pytest.fixture
def mirrored() -> MirroredKind:
    return MirroredKind()


def test_objects_are_listed_by_group_until_they_are_deleted(mirrored: MirroredKind) -> None:
    mirrored.send("ADDED", "a")
    mirrored.send("ADDED", "b")
    mirrored.send("DELETED", "a")
    assert list(mirrored.mirror.of("g")) == ["b"]
    assert mirrored.changed == ["g", "g", "g"]


def test_objects_without_a_group_are_ignored(mirrored: MirroredKind) -> None:
    mirrored.send("ADDED", "a", gang=None)
    assert mirrored.changed == []


def test_an_object_missing_from_a_later_list_was_deleted(mirrored: MirroredKind) -> None:
    mirrored.send("ADDED", "a")
    mirrored.send("ADDED", "b", gang="other")
    mirrored.mirror.list_begins()
    mirrored.send("ADDED", "b", gang="other")
    assert list(mirrored.mirror.of("g")) == ["a"]
    mirrored.changed.clear()
    mirrored.mirror.list_ends({"metadata": {"resourceVersion": "2"}})
    assert not mirrored.mirror.of("g")
    assert list(mirrored.mirror.of("other")) == ["b"]
    assert mirrored.changed == ["g"]
