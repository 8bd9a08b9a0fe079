"""A cache of one kind of object: written by one informer, read by everybody.

Theory of operation. A store holds the newest known state of every object under `namespace/name`, and any number of
indexes over them. Changes come from two sides:

- the watch, in the server's order: `replace` (a whole list at once), `upsert`, `delete`, `bookmark`, `skip`. Together
  they carry the *version* of the store: everything that the server did up to it has been seen;
- our own writes: `assume` puts the API's answer into the store before the watch brings it, so that the next sync sees
  what the last one did. That is what other controllers need expectations for.

An assumed object is a promise: the watch will bring this version or a later one. Three rules keep it from becoming a
ghost or a step back in time:

1. `assume` refuses an object at or below the store's version: the watch has passed that point, and whatever it said
   (a newer state, a deletion) is what counts;
2. an event older than what is stored for its key is dropped, deletions of an earlier object of that name included;
3. an assumed object that the watch has passed without a word (a bookmark or a whole list at or above its version) does
   not belong here, perhaps since it does not match the selector, and goes.

Versions are compared as integers. The API promised that they can be since Kubernetes 1.35, and etcd's
revisions have always been such; servers that count otherwise cannot be cached here.

A list older than the store's version is the one case where time runs backwards: the reflector never asks for less than
it has seen, so the server's own history was turned back (etcd restored from a backup). Then the list wins over all.

Everybody who subscribed is told of each change exactly once, in order and under the store's lock: a listener only
queues what it is told, and never calls back. Objects are immutable and shared; who changes one breaks all readers.

Threads: every method from any thread. Reads see one consistent state; a `replace` is seen whole or not at all.
Source: client-go tools/cache thread_safe_store.go, controller.go (processReplacedAllInfo);
the rules of `assume` are ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeAlias

import msgspec
import structlog

from tfjob_controller.kube.meta import Object, ObjectT, controller_of, key_of, version_of

log = structlog.get_logger(__name__)

# What an absent object counts as: older than everything.
_ABSENT = -1


class Added(msgspec.Struct, Generic[ObjectT], frozen=True):
    """An object that was not there before."""

    obj: ObjectT


class Updated(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A newer state of the same object (same uid)."""

    old: ObjectT
    new: ObjectT


class Deleted(msgspec.Struct, Generic[ObjectT], frozen=True):
    """An object is gone. `final` says whether `obj` is its last state, or only the last that was seen (tombstone)."""

    obj: ObjectT
    final: bool


class Synced(msgspec.Struct, frozen=True):
    """All that the first list held has been told."""


Change: TypeAlias = Added[ObjectT] | Updated[ObjectT] | Deleted[ObjectT] | Synced
Listener: TypeAlias = Callable[[Change[ObjectT]], None]
IndexFunction: TypeAlias = Callable[[ObjectT], Iterable[str]]


def by_controller_uid(obj: Object) -> Iterable[str]:
    """Index function: the uid of the controlling owner, if there is one."""
    owner = controller_of(obj)
    return (owner.uid,) if owner else ()


class Store(Generic[ObjectT]):
    """The cache; see the module's text for the rules. Index functions must be pure: they are asked again on removal."""

    def __init__(self, indexers: Mapping[str, IndexFunction[ObjectT]] | None = None) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, ObjectT] = {}
        self._indexes = {name: _Index(name, function) for name, function in (indexers or {}).items()}
        self._assumed: dict[str, int] = {}
        self._version = 0
        self._synced = False
        self._listeners: list[Listener[ObjectT]] = []

    # What readers use

    def get(self, key: str) -> ObjectT | None:
        with self._lock:
            return self._objects.get(key)

    def list(self) -> Sequence[ObjectT]:
        """All objects, as of now, in no particular order."""
        with self._lock:
            return [*self._objects.values()]

    def keys(self) -> Sequence[str]:
        with self._lock:
            return [*self._objects]

    def by_index(self, index: str, value: str) -> Sequence[ObjectT]:
        """All objects that the index function gave this value for; KeyError if there is no such index."""
        with self._lock:
            return [self._objects[key] for key in self._indexes[index].keys(value)]

    def index_values(self, index: str) -> Sequence[str]:
        """All values that some object has now in that index (client-go's ListIndexFuncValues)."""
        with self._lock:
            return self._indexes[index].values()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def last_resource_version(self) -> int:
        """Everything that the server did up to this version has been seen; 0 before the first list."""
        return self._version

    @property
    def is_synced(self) -> bool:
        """Whether a whole list has been stored; stays True."""
        return self._synced

    # What writers to the API use

    def assume(self, obj: ObjectT) -> bool:
        """Store an object as the API answered a create, patch or update of it; False if the watch knows better.

        Listeners are told as of any other change, and the watch's echo of the same version then changes nothing. Only
        for objects that this store's list and watch would bring: right namespace, right labels.
        """
        key, version = key_of(obj), version_of(obj)
        with self._lock:
            if version <= self._version or version <= self._stored_version(key):
                return False
            self._assumed[key] = version
            self._put(key, obj)
            return True

    # What the informer uses

    def replace(self, objects: Iterable[ObjectT], version: int, unreadable: Collection[str] = ()) -> None:
        """Take a whole list at once. Keys in `unreadable` exist but could not be decoded: their old state stays."""
        fresh = {key_of(obj): obj for obj in objects}
        with self._lock:
            turned_back = version < self._version
            self._assumed = {} if turned_back else {k: v for k, v in self._assumed.items() if v > version}
            self._version = version
            for key in [key for key in self._objects if key not in fresh and key not in self._assumed]:
                if key not in unreadable:
                    self._drop(key, None)
            for key, obj in fresh.items():
                if key not in self._assumed and self._stored_version(key) != version_of(obj):
                    self._put(key, obj)
            self._announce_sync()

    def upsert(self, obj: ObjectT) -> None:
        """An ADDED or MODIFIED event. Older than what is stored: dropped; the same version: confirmed silently."""
        key, version = key_of(obj), version_of(obj)
        with self._lock:
            self._version = max(self._version, version)
            stored = self._stored_version(key)
            if version >= stored:
                self._assumed.pop(key, None)
            if version > stored:
                self._put(key, obj)

    def delete(self, key: str, version: int, last_state: ObjectT | None) -> None:
        """A DELETED event, with the object's last state if it could be read."""
        with self._lock:
            self._version = max(self._version, version)
            if key in self._objects and version >= self._stored_version(key):
                self._drop(key, last_state)

    def skip(self, key: str, version: int) -> None:
        """An event whose object could not be decoded: what is stored stays."""
        with self._lock:
            self._version = max(self._version, version)
            if version >= self._stored_version(key):
                self._assumed.pop(key, None)

    def bookmark(self, version: int) -> None:
        """The watch has passed this version: what was assumed up to it and never confirmed does not belong here."""
        with self._lock:
            self._version = max(self._version, version)
            for key in [key for key, assumed in self._assumed.items() if assumed <= version]:
                log.warning("assumed object never seen by the watch, dropped", key=key)
                self._drop(key, None)

    def subscribe(self, listener: Listener[ObjectT]) -> None:
        """Tell `listener` the present state as additions, then every change, in order and each once.

        It is called under the store's lock, from any thread: it must be quick, must not raise and must not call the
        store.
        """
        with self._lock:
            for obj in self._objects.values():
                listener(Added(obj))
            if self._synced:
                listener(Synced())
            self._listeners.append(listener)

    # Under the lock

    def _stored_version(self, key: str) -> int:
        stored = self._objects.get(key)
        return _ABSENT if stored is None else version_of(stored)

    def _put(self, key: str, obj: ObjectT) -> None:
        old = self._objects.get(key)
        self._objects[key] = obj
        for index in self._indexes.values():
            index.move(key, old, obj)
        if old is None:
            self._tell(Added(obj))
        elif old.metadata.uid == obj.metadata.uid:
            self._tell(Updated(old, obj))
        else:
            # Deleted and created anew in between: nobody has to compare uids to notice.
            self._tell(Deleted(old, final=False))
            self._tell(Added(obj))

    def _drop(self, key: str, last_state: ObjectT | None) -> None:
        old = self._objects.pop(key)
        self._assumed.pop(key, None)
        for index in self._indexes.values():
            index.move(key, old, None)
        self._tell(Deleted(old, final=False) if last_state is None else Deleted(last_state, final=True))

    def _announce_sync(self) -> None:
        if not self._synced:
            self._synced = True
            self._tell(Synced())

    def _tell(self, change: Change[ObjectT]) -> None:
        for listener in self._listeners:
            listener(change)


class _Index(Generic[ObjectT]):
    """Value → keys of the objects that have it. Not thread-safe: the store's lock guards it."""

    def __init__(self, name: str, function: IndexFunction[ObjectT]) -> None:
        self._name = name
        self._function = function
        # A dict as an ordered set: smaller than a set for the few entries that are usual.
        self._keys: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        return self._keys.get(value, ())

    def values(self) -> list[str]:
        return [*self._keys]

    def move(self, key: str, old: ObjectT | None, new: ObjectT | None) -> None:
        """Take `key` from the values of `old` to those of `new`; None is no object."""
        before, after = self._values_of(key, old), self._values_of(key, new)
        if before == after:
            return
        for value in before - after:
            self._remove(key, value)
        for value in after - before:
            self._keys.setdefault(value, {})[key] = None

    def _remove(self, key: str, value: str) -> None:
        keys = self._keys[value]
        del keys[key]
        if not keys:
            del self._keys[value]

    def _values_of(self, key: str, obj: ObjectT | None) -> frozenset[str]:
        if obj is None:
            return frozenset()
        try:
            return frozenset(self._function(obj))
        except Exception:
            # One odd object must not stop a cache that holds a thousand others: it is only missing from this index.
            log.exception("index function failed", index=self._name, key=key)
            return frozenset()
