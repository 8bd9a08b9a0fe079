"""The informer's contract, on a server in memory; test/integration/test_informer.py is its twin."""

from __future__ import annotations

import json

import pytest

from helpers.informercontract import Diary, InformerContract
from helpers.memoryapi import MemoryApi
from helpers.things import THINGS, Thing, decode_thing
from tfjob_controller.kube.cache.informer import Informer


class MemoryCollection:
    """A `Collection` of informercontract.py; its server supports streaming lists only."""

    resource = THINGS
    namespace = "ns"
    label_selector = ""

    def __init__(self) -> None:
        self.requester = MemoryApi()

    def put(self, name: str, size: int) -> Thing:
        stored = self.requester.put(THINGS.path("ns"), {"metadata": {"name": name}, "size": size})
        return decode_thing(json.dumps(stored).encode())

    def remove(self, name: str) -> None:
        self.requester.remove(THINGS.path("ns", name))

    def cut(self) -> None:
        self.requester.cut()


class TestInformerOnAServerInMemory(InformerContract):
    @pytest.fixture
    def collection(self) -> MemoryCollection:
        return MemoryCollection()

    def test_changes_while_the_version_expired_are_notified_by_the_next_list(
        self, informer: Informer[Thing], collection: MemoryCollection, diary: Diary
    ) -> None:
        collection.put("gone", 1)
        collection.put("stays", 1)
        self.synced(informer)
        collection.cut()
        collection.remove("gone")
        collection.put("new", 1)
        collection.requester.expire()
        diary.comes_to(
            ("add", "gone", 1, True), ("add", "stays", 1, True), ("delete", "gone", False), ("add", "new", 1, False)
        )
        assert informer.statistics().reflector.expired == 1
