"""Tests of lab.mirror: the objects of a kind after watch events."""

from __future__ import annotations

import pytest

from lab.mirror import Mirror
from localcluster.api import Api


class MirroredKind:
    def __init__(self) -> None:
        self.changed: list[str] = []
        self.mirror = Mirror(Api("https://127.0.0.1:1", ca=None), "/pods", self.changed.append)

    def send(self, change: str, name: str) -> None:
        self.mirror.take(change, {"metadata": {"name": name, "resourceVersion": "1"}})


@pytest.fixture
def mirrored() -> MirroredKind:
    return MirroredKind()


def test_objects_are_known_until_they_are_deleted(mirrored: MirroredKind) -> None:
    mirrored.send("ADDED", "a")
    mirrored.send("ADDED", "b")
    mirrored.send("DELETED", "a")
    assert (mirrored.mirror.get("a"), mirrored.mirror.get("b") is None) == (None, False)
    assert mirrored.changed == ["a", "b", "a"]


def test_an_object_missing_from_a_later_list_was_deleted(mirrored: MirroredKind) -> None:
    mirrored.send("ADDED", "a")
    mirrored.send("ADDED", "b")
    mirrored.mirror.list_begins()
    mirrored.send("ADDED", "b")
    assert mirrored.mirror.get("a") is not None
    mirrored.changed.clear()
    mirrored.mirror.list_ends({"metadata": {"resourceVersion": "2"}})
    assert (mirrored.mirror.get("a"), mirrored.mirror.get("b") is None) == (None, False)
    assert mirrored.changed == ["a"]
