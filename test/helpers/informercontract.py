"""The contract of an informer: the same tests for a model in memory and for a real API server.

A test module gives a fixture `collection` (see `Collection`) and derives a class from `InformerContract`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

import pytest

from helpers.kubernetesversion import STREAMING, STREAMING_SINCE
from helpers.mutation import MutationDetector
from helpers.poll import eventually
from helpers.things import Thing
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import RealClock

# Twice the longest first delay of the back-off, and time to connect.
LIMIT_SECONDS = 60.0


def complete_lists(informer: Informer[Thing]) -> int:
    """How many lists the informer has read: by streaming, or in pages from a server without streaming lists."""
    counts = informer.statistics().reflector
    return counts.streaming_lists + counts.lists


class Collection(Protocol):
    """Some objects on a server, as another client sees and changes them."""

    requester: Requester
    resource: Resource[Thing]
    namespace: str
    label_selector: str

    def put(self, name: str, size: int) -> Thing:
        """Creates or updates an object; returns the server's response."""

    def remove(self, name: str) -> None: ...

    def cut(self) -> None:
        """Breaks all connections of the requester."""


class Diary:
    """A handler that records its notifications."""

    def __init__(self) -> None:
        self.entries: list[tuple[object, ...]] = []

    def on_add(self, obj: Thing, is_initial: bool) -> None:
        self.entries.append(("add", obj.metadata.name, obj.size, is_initial))

    def on_update(self, old: Thing, new: Thing) -> None:
        self.entries.append(("update", new.metadata.name, old.size, new.size))

    def on_delete(self, obj: Thing, final: bool) -> None:
        self.entries.append(("delete", obj.metadata.name, final))

    def comes_to(self, *entries: tuple[object, ...]) -> None:
        eventually(lambda: len(self.entries) >= len(entries), timeout=LIMIT_SECONDS)
        assert self.entries == [*entries], f"was told {self.entries}"


class InformerContract:
    @pytest.fixture
    def diary(self) -> Diary:
        return Diary()

    @pytest.fixture
    def informer(self, collection: Collection, diary: Diary) -> Iterator[Informer[Thing]]:
        """Yields an informer that is not started.

        After the test, no cached object may have changed, and no thread may run.
        """
        before = set(threading.enumerate())
        informer = Informer(
            collection.requester,
            collection.resource,
            namespace=collection.namespace,
            label_selector=collection.label_selector,
            clock=RealClock(),
        )
        detector = MutationDetector(informer.store)
        informer.add_handler(diary)
        yield informer
        assert informer.stop(LIMIT_SECONDS)
        assert not [thread for thread in set(threading.enumerate()) - before if "informer" in thread.name]
        detector.check()

    def synced(self, informer: Informer[Thing]) -> None:
        informer.start()
        eventually(lambda: informer.is_synced)

    def test_it_follows_what_happens(self, informer: Informer[Thing], collection: Collection, diary: Diary) -> None:
        collection.put("there", 1)
        self.synced(informer)
        collection.put("there", 2)
        collection.put("new", 3)
        collection.remove("there")
        diary.comes_to(
            ("add", "there", 1, True), ("update", "there", 1, 2), ("add", "new", 3, False), ("delete", "there", True)
        )
        assert {obj.metadata.name: obj.size for obj in informer.store.list()} == {"new": 3}

    @pytest.mark.kubernetes(STREAMING_SINCE, STREAMING)
    def test_it_lists_by_streaming_and_only_once(
        self, informer: Informer[Thing], collection: Collection, diary: Diary
    ) -> None:
        for number in range(5):
            collection.put(f"n{number}", number)
        self.synced(informer)
        collection.put("later", 9)
        eventually(lambda: len(informer.store) == 6, timeout=LIMIT_SECONDS)
        statistics = informer.statistics().reflector
        assert (statistics.streaming_lists, statistics.lists, statistics.watches) == (1, 0, 1)

    def test_a_cut_connection_costs_no_event_and_no_list(
        self, informer: Informer[Thing], collection: Collection, diary: Diary
    ) -> None:
        self.synced(informer)
        collection.put("a", 1)
        diary.comes_to(("add", "a", 1, False))
        collection.cut()
        collection.put("a", 2)
        collection.put("b", 1)
        collection.remove("a")
        diary.comes_to(("add", "a", 1, False), ("update", "a", 1, 2), ("add", "b", 1, False), ("delete", "a", True))
        assert complete_lists(informer) == 1
        eventually(lambda: informer.last_error == "", timeout=LIMIT_SECONDS)

    def test_an_own_write_is_seen_at_once_and_told_once(
        self, informer: Informer[Thing], collection: Collection, diary: Diary
    ) -> None:
        self.synced(informer)
        for size in range(1, 6):
            informer.store.assume(collection.put("mine", size))
            stored = informer.store.get(f"{collection.namespace}/mine")
            assert stored is not None
            assert stored.size == size
        updates = [("update", "mine", size, size + 1) for size in range(1, 5)]
        collection.put("last", 0)
        diary.comes_to(("add", "mine", 1, False), *updates, ("add", "last", 0, False))

    def test_an_answer_that_comes_after_the_deletion_makes_no_ghost(
        self, informer: Informer[Thing], collection: Collection, diary: Diary
    ) -> None:
        self.synced(informer)
        answer = collection.put("short", 1)
        collection.remove("short")
        diary.comes_to(("add", "short", 1, False), ("delete", "short", True))
        assert not informer.store.assume(answer)
        assert len(informer.store) == 0

    def test_an_own_write_assumed_before_its_events_arrive_is_removed_by_the_deletion(
        self, informer: Informer[Thing], collection: Collection, diary: Diary
    ) -> None:
        self.synced(informer)
        informer.store.assume(collection.put("short", 1))
        collection.remove("short")
        diary.comes_to(("add", "short", 1, False), ("delete", "short", True))
        assert len(informer.store) == 0

    def test_a_late_handler_gets_the_present_state(self, informer: Informer[Thing], collection: Collection) -> None:
        collection.put("there", 1)
        self.synced(informer)
        late = Diary()
        registration = informer.add_handler(late)
        collection.put("there", 2)
        late.comes_to(("add", "there", 1, True), ("update", "there", 1, 2))
        assert registration.has_synced
