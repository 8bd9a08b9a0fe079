"""Reflector and store against a model of the server, under any order of writes, late answers, cuts and expiries."""

import random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.scripted import PatientClock
from helpers.things import THINGS, Thing
from helpers.world import NAMES, Act, Action, World
from tfjob_controller.kube.cache.reflector import Reflector
from tfjob_controller.kube.cache.store import Added, Change, Deleted, Store, Synced, Updated
from tfjob_controller.kube.cache.watchdecoder import BookmarkDelta, DeleteDelta, Delta, ReplaceDelta, UpsertDelta
from tfjob_controller.kube.meta import key_of, version_of

COMMON = (Act.CREATE_OR_UPDATE, Act.DELETE, Act.WRITE_AND_ASSUME, Act.ASSUME_LATE, Act.DELIVER, Act.DELIVER)
RARE = tuple(set(Act) - set(COMMON))

action = st.builds(
    Action,
    st.one_of(st.sampled_from(COMMON), st.sampled_from(COMMON), st.sampled_from(RARE)),
    st.sampled_from(NAMES),
    st.integers(0, 20),
)
# Short ones are easy to read, long ones reach further: left alone, hypothesis makes few of them.
scripts = st.one_of(st.lists(action, max_size=20), st.lists(action, min_size=40, max_size=150))


class Cache:
    """A store fed by a reflector, and checked against the world after every step."""

    def __init__(self, script: list[Action]) -> None:
        self.store: Store[Thing] = Store({"uid": lambda obj: [obj.metadata.uid]})
        self.told: dict[str, Thing] = {}
        self.assumed: list[Thing] = []
        self.store.subscribe(self.hear)
        self.world = World(script, self.assume, lambda: self.reflector.stop())
        self.reflector = Reflector(self.world, THINGS, self.apply, clock=PatientClock(), rng=random.Random(0))
        self.reflector.run()

    def assume(self, obj: Thing) -> bool:
        taken = self.store.assume(obj)
        event(f"assumed: {taken}")
        if taken:
            self.assumed.append(obj)
        self.check()
        return taken

    def apply(self, change: Delta[Thing]) -> None:
        event(type(change).__name__)
        if isinstance(change, ReplaceDelta):
            self.store.replace(change.objects, change.version, change.unreadable)
        elif isinstance(change, UpsertDelta):
            self.store.upsert(change.obj)
        elif isinstance(change, DeleteDelta):
            self.store.delete(change.key, change.version, change.last_state)
        elif isinstance(change, BookmarkDelta):
            self.store.bookmark(change.version)
        self.check()

    def hear(self, change: Change[Thing]) -> None:
        """What a handler is told makes sense on its own: an addition first, ever newer states, then a deletion."""
        if isinstance(change, Added):
            assert key_of(change.obj) not in self.told
            self.told[key_of(change.obj)] = change.obj
        elif isinstance(change, Updated):
            assert self.told[key_of(change.new)] == change.old
            assert version_of(change.new) > version_of(change.old)
            assert change.new.metadata.uid == change.old.metadata.uid
            self.told[key_of(change.new)] = change.new
        elif isinstance(change, Deleted):
            was = self.told.pop(key_of(change.obj))
            assert was.metadata.uid == change.obj.metadata.uid
        else:
            assert isinstance(change, Synced)

    def check(self) -> None:
        """The store is the server's state at the store's version, and over it our own writes that are newer.

        So no older version ever replaces a newer one, and nothing that was deleted up to that version is there.
        """
        version = self.store.last_resource_version
        expected = self.world.state_at(version) if self.store.is_synced else {}
        for obj in sorted(self.assumed, key=version_of):
            if version_of(obj) > version:
                expected[key_of(obj)] = obj
        stored = {key_of(obj): obj for obj in self.store.list()}
        assert stored == expected
        assert stored == self.told
        for obj in stored.values():
            assert self.store.by_index("uid", obj.metadata.uid) == [obj]
        assert len(self.store.index_values("uid")) == len(stored)


@settings(max_examples=examples(200), deadline=None)
@given(script=scripts)
def test_the_store_is_always_a_state_of_the_server_with_our_newer_writes_and_in_the_end_the_present_one(
    script: list[Action],
) -> None:
    cache = Cache(script)
    assert {key_of(obj): obj for obj in cache.store.list()} == cache.world.now
