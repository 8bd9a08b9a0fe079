"""The rules of kube/cache/store.py. More of those of assumed writes are in test/property/test_store.py."""

import threading
from collections.abc import Iterable

import pytest

from helpers.mutation import MutationDetector
from helpers.things import Thing, thing
from tfjob_controller.kube.cache.store import (
    Added,
    Change,
    Deleted,
    Store,
    Synced,
    Updated,
    by_controller_uid,
)
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference

A5, A7 = thing("a", 5), thing("a", 7)
B6 = thing("b", 6)


def names(objects: Iterable[Thing]) -> list[str]:
    return sorted(obj.metadata.name for obj in objects)


def told_by(store: Store[Thing]) -> list[Change[Thing]]:
    """What a subscriber is told from now on."""
    told: list[Change[Thing]] = []
    store.subscribe(told.append)
    told.clear()
    return told


def filled(*objects: Thing, version: int = 10) -> Store[Thing]:
    store: Store[Thing] = Store()
    store.replace(objects, version)
    return store


# Reading


def test_objects_are_found_under_their_namespace_and_name() -> None:
    store = filled(A5, B6)
    assert store.get("ns/a") == A5
    assert store.get("ns/c") is None
    assert (names(store.list()), len(store)) == (["a", "b"], 2)


def test_a_list_is_a_snapshot() -> None:
    store = filled(A5)
    before = store.list()
    store.upsert(thing("b", 11))
    assert names(before) == ["a"]


def test_an_unknown_index_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        filled().by_index("color", "red")


def test_an_object_that_an_index_function_cannot_read_is_only_missing_there() -> None:
    def picky(obj: Thing) -> Iterable[str]:
        return [obj.metadata.labels["must"]]

    store: Store[Thing] = Store({"picky": picky})
    store.replace([A5, thing("b", 6, labels={"must": "x"})], 10)
    assert names(store.list()) == ["a", "b"]
    assert names(store.by_index("picky", "x")) == ["b"]
    store.delete("ns/a", 11, None)
    assert names(store.list()) == ["b"]


def test_ready_made_index_functions() -> None:
    owner = OwnerReference(api_version="v1", kind="Thing", name="o", uid="u1", controller=True)
    meta = ObjectMeta(name="a", namespace="ns", resource_version="1", labels={"x": "1"}, owner_references=(owner,))
    owned = Thing(meta)
    assert list(by_controller_uid(owned)) == ["u1"]
    assert list(by_controller_uid(A5)) == []


# The watch


def test_changes_are_reported_once_and_in_order() -> None:
    store = filled(A5)
    told = told_by(store)
    store.upsert(thing("b", 11))
    store.upsert(thing("b", 12))
    store.delete("ns/b", 13, thing("b", 13))
    assert told == [
        Added(thing("b", 11)),
        Updated(thing("b", 11), thing("b", 12)),
        Deleted(thing("b", 13), final=True),
    ]


def test_a_deletion_without_its_last_state_reports_the_last_seen_state() -> None:
    store = filled(A5)
    told = told_by(store)
    store.delete("ns/a", 11, None)
    assert told == [Deleted(A5, final=False)]


def test_a_list_notifies_only_differences_and_missed_deletions_as_tombstones() -> None:
    store = filled(A5, B6, thing("c", 4))
    told = told_by(store)
    store.replace([A7, B6, thing("d", 8)], 20)
    assert told == [Deleted(thing("c", 4), final=False), Updated(A5, A7), Added(thing("d", 8))]


def test_a_recreated_object_is_reported_as_deleted_and_added() -> None:
    store = filled(A5)
    told = told_by(store)
    anew = thing("a", 15, uid="other")
    store.replace([anew], 20)
    assert told == [Deleted(A5, final=False), Added(anew)]


def test_an_undecodable_object_of_a_list_keeps_its_old_state() -> None:
    store = filled(A5, B6)
    told = told_by(store)
    store.replace([B6], 20, unreadable={"ns/a"})
    assert store.get("ns/a") == A5
    assert told == []


def test_it_is_synced_after_the_first_list() -> None:
    store: Store[Thing] = Store()
    told = told_by(store)
    assert not store.is_synced
    store.replace([A5], 10)
    store.replace([A5], 11)
    assert store.is_synced
    assert told == [Added(A5), Synced()]


def test_a_late_subscriber_first_receives_the_present_state() -> None:
    store = filled(A5)
    told: list[Change[Thing]] = []
    store.subscribe(told.append)
    store.upsert(thing("a", 11))
    assert told == [Added(A5), Synced(), Updated(A5, thing("a", 11))]


def test_readers_never_see_half_a_list() -> None:
    store: Store[Thing] = Store()
    lists = [[thing(f"{name}{i}", i + 1, uid=f"{name}{i}") for i in range(200)] for name in "ab"]
    store.replace(lists[0], 1)
    torn: list[set[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            kinds = {obj.metadata.name[0] for obj in store.list()}
            if len(kinds) != 1:
                torn.append(kinds)

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(50):
        store.replace(lists[turn % 2], turn + 2)
    done.set()
    reader.join()
    assert torn == []


# Assumed writes


def test_a_confirmed_object_outlives_bookmarks() -> None:
    store = filled(A5, version=10)
    store.assume(thing("c", 12))
    store.upsert(thing("c", 12))
    store.bookmark(20)
    assert store.get("ns/c") == thing("c", 12)


def test_an_assumed_object_whose_event_could_not_be_decoded_stays() -> None:
    store = filled(A5, version=10)
    store.assume(thing("c", 12))
    store.skip("ns/c", 12)
    store.bookmark(20)
    assert store.get("ns/c") == thing("c", 12)


def test_when_the_server_was_set_back_its_list_wins_over_all() -> None:
    store = filled(A7, version=100)
    store.assume(thing("c", 120))
    store.replace([A5], 50)
    assert store.list() == [A5]
    assert store.last_resource_version == 50


def test_before_the_first_list_everything_can_be_assumed() -> None:
    store: Store[Thing] = Store()
    assert store.assume(A5)
    store.replace([], 10)
    assert store.get("ns/a") is None


# The detector


def test_the_mutation_detector_finds_a_changed_object() -> None:
    store: Store[Thing] = Store()
    detector = MutationDetector(store)
    store.replace([thing("a", 1, labels={"x": "1"}), B6], 10)
    detector.check()
    obj = store.get("ns/a")
    assert obj is not None
    obj.metadata.labels["x"] = "2"
    with pytest.raises(AssertionError, match="ns/a was changed"):
        detector.check()
