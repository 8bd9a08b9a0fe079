"""The store against a model: its objects, indexes and notifications under any order of calls.

Unlike the reflector's property, nothing here promises that versions come in order: the store alone must never step back
for one key while nothing is set back, and its indexes and listeners must agree with what it holds.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers.examples import examples
from helpers.mutation import MutationDetector
from helpers.things import Thing, thing
from tfjob_controller.kube.cache.store import Added, Change, Deleted, Store, Synced, Updated
from tfjob_controller.kube.meta import key_of, version_of

names = st.sampled_from("abcd")
steps = st.integers(0, 4)
colors = st.sets(st.sampled_from(["red", "green", "blue"]))
uids = st.sampled_from(["u1", "u2"])


def colors_of(obj: Thing) -> list[str]:
    return [*obj.metadata.labels]


class Machine(RuleBasedStateMachine):
    """`model` is key → object as the rules of the module's text give it."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Thing] = Store({"color": colors_of})
        self.detector = MutationDetector(self.store)
        self.model: dict[str, Thing] = {}
        self.promised: dict[str, int] = {}
        self.told: dict[str, Thing] = {}
        self.synced_told = 0
        self.version = 0
        self.store.subscribe(self.hear)

    def hear(self, change: Change[Thing]) -> None:
        if isinstance(change, Added):
            assert key_of(change.obj) not in self.told
            self.told[key_of(change.obj)] = change.obj
        elif isinstance(change, Updated):
            assert self.told[key_of(change.new)] is change.old
            self.told[key_of(change.new)] = change.new
        elif isinstance(change, Deleted):
            was = self.told.pop(key_of(change.obj))
            assert change.final or change.obj is was
        else:
            assert change == Synced()
            self.synced_told += 1

    def made(self, name: str, version: int, uid: str, colored: set[str]) -> Thing:
        return thing(name, version, uid=uid, labels=dict.fromkeys(sorted(colored), ""))

    def stored_version(self, obj: Thing) -> int:
        stored = self.model.get(key_of(obj))
        return -1 if stored is None else version_of(stored)

    @initialize()
    def begin(self) -> None:
        self.replace(set(), 5, 1)

    @rule(name=names, step=steps, uid=uids, colored=colors)
    def upsert(self, name: str, step: int, uid: str, colored: set[str]) -> None:
        obj = self.made(name, self.version + step, uid, colored)
        key = key_of(obj)
        self.store.upsert(obj)
        if version_of(obj) >= self.stored_version(obj):
            self.promised.pop(key, None)
        if version_of(obj) > self.stored_version(obj):
            self.model[key] = obj
        self.version = max(self.version, version_of(obj))

    @rule(name=names, step=steps, uid=uids, readable=st.booleans())
    def delete(self, name: str, step: int, uid: str, readable: bool) -> None:
        obj = self.made(name, self.version + step, uid, set())
        self.store.delete(key_of(obj), version_of(obj), obj if readable else None)
        if version_of(obj) >= self.stored_version(obj):
            self.model.pop(key_of(obj), None)
            self.promised.pop(key_of(obj), None)
        self.version = max(self.version, version_of(obj))

    @rule(name=names, step=st.integers(-3, 9), uid=uids, colored=colors)
    def assume(self, name: str, step: int, uid: str, colored: set[str]) -> None:
        obj = self.made(name, max(0, self.version + step), uid, colored)
        expected = version_of(obj) > max(self.version, self.stored_version(obj))
        assert self.store.assume(obj) is expected
        if expected:
            self.model[key_of(obj)] = obj
            self.promised[key_of(obj)] = version_of(obj)

    @rule(name=names, step=steps)
    def skip(self, name: str, step: int) -> None:
        obj = self.made(name, self.version + step, "u1", set())
        self.store.skip(key_of(obj), version_of(obj))
        if version_of(obj) >= self.stored_version(obj):
            self.promised.pop(key_of(obj), None)
        self.version = max(self.version, version_of(obj))

    @rule(step=steps)
    def bookmark(self, step: int) -> None:
        self.version += step
        self.store.bookmark(self.version)
        for key in [key for key, promised in self.promised.items() if promised <= self.version]:
            del self.model[key], self.promised[key]

    @rule(listed=st.sets(names), step=st.integers(-2, 9), spare=st.integers(1, 3))
    def replace(self, listed: set[str], step: int, spare: int) -> None:
        version = max(1, self.version + step)
        objects = [self.made(name, max(1, version - spare), "u1", {"red"}) for name in sorted(listed)]
        self.store.replace(objects, version)
        set_back = version < self.version
        self.promised = {k: v for k, v in self.promised.items() if v > version and not set_back}
        kept = {key: self.model[key] for key in self.promised}
        self.model = {key_of(obj): obj for obj in objects} | kept
        self.version = version

    @invariant()
    def agrees(self) -> None:
        stored = {key_of(obj): obj for obj in self.store.list()}
        assert {key: version_of(obj) for key, obj in stored.items()} == {
            key: version_of(obj) for key, obj in self.model.items()
        }
        assert stored == self.told
        assert self.store.last_resource_version == self.version
        assert self.synced_told <= 1

    @invariant()
    def indexes_agree(self) -> None:
        by_color: dict[str, set[str]] = {}
        for obj in self.store.list():
            for color in colors_of(obj):
                by_color.setdefault(color, set()).add(key_of(obj))
        assert {
            color: {key_of(obj) for obj in self.store.by_index("color", color)}
            for color in self.store.index_values("color")
        } == by_color

    def teardown(self) -> None:
        self.detector.check()


TestStore = Machine.TestCase
TestStore.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
