"""The informer's contract, on a server in memory; test/integration/test_informer.py is its twin."""

import pytest

from helpers.informercontract import Diary, InformerContract
from helpers.memorycollection import MemoryCollection
from helpers.things import Thing
from tfjob_controller.kube.cache.informer import Informer


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
        collection.expire()
        diary.comes_to(
            ("add", "gone", 1, True), ("add", "stays", 1, True), ("delete", "gone", False), ("add", "new", 1, False)
        )
        assert informer.statistics().reflector.expired == 1
