"""A cache of one kind of object, written by one informer and read by all threads.

Theory of operation. A store holds the newest known state of every object under `namespace/name`, and any number of
indexes over them. Changes come from two sides:

- the watch, in the server's order: `replace` (a complete list), `upsert`, `delete`, `bookmark`, `skip`. They advance
  the *version* of the store: everything that the server did up to it has been seen;
- our own writes: `assume` puts the response to a write into the store before the watch delivers it, so that the next
  sync sees what the last one wrote. Other controllers need expectations for that.

An assumed object is a promise: the watch will deliver this version or a later one. Three rules keep the cache from
showing stale or phantom objects:

1. `assume` refuses an object at or below the store's version: the watch has passed that point, and what it delivered
   (a newer state, a deletion) is authoritative;
2. an event older than what is stored for its key is dropped, including deletions of an earlier object of that name;
3. an assumed object that the watch has passed without mentioning it (by a bookmark or a complete list at or above its
   version) is dropped, since it does not belong to the collection, for example because of the label selector.

Versions are compared as integers, which the API guarantees since Kubernetes 1.35 and which etcd's revisions have always
been; servers with other versions cannot be cached.

Only after a restore of etcd from a backup is a list older than the store's version, since the reflector never asks for
less than it has seen. Then the list replaces everything.

Every subscriber is notified of each change exactly once, in order and under the store's lock: a listener only queues
the change and never calls back. Objects are immutable and shared.

Threads: every method from any thread. Reads see one consistent state; a `replace` is seen whole or not at all.
Source: client-go tools/cache thread_safe_store.go, controller.go (processReplacedAllInfo);
kube-scheduler backend/cache (AssumePod) for the idea of `assume`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeAlias

import msgspec
import structlog

from tfjob_controller.kube.meta import Object, ObjectT, controller_of, key_of, version_of

log = structlog.get_logger(__name__)

# The version of an absent object: older than everything.
_ABSENT = -1


class Added(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A new object."""

    obj: ObjectT


class Updated(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A newer state of the same object (same uid)."""

    old: ObjectT
    new: ObjectT


class Deleted(msgspec.Struct, Generic[ObjectT], frozen=True):
    """An object was deleted. `final`: `obj` is its last state, not only the last one that was seen (tombstone)."""

    obj: ObjectT
    final: bool


class Synced(msgspec.Struct, frozen=True):
    """Everything in the first list has been delivered."""


Change: TypeAlias = Added[ObjectT] | Updated[ObjectT] | Deleted[ObjectT] | Synced
Listener: TypeAlias = Callable[[Change[ObjectT]], None]
IndexFunction: TypeAlias = Callable[[ObjectT], Iterable[str]]


def by_controller_uid(obj: Object) -> Iterable[str]:
    """Index function: the uid of the controlling owner, if there is one."""
    owner = controller_of(obj)
    return (owner.uid,) if owner else ()


class Store(Generic[ObjectT]):
    """The cache; see the module's docstring. Index functions must be pure: they are called again on removal."""

    def __init__(self, indexers: Mapping[str, IndexFunction[ObjectT]] | None = None) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, ObjectT] = {}
        self._indexes = {name: _Index(name, function) for name, function in (indexers or {}).items()}
        self._assumed: dict[str, int] = {}
        self._version = 0
        self._synced = False
        self._listeners: list[Listener[ObjectT]] = []

    # For readers

    def get(self, key: str) -> ObjectT | None:
        with self._lock:
            return self._objects.get(key)

    def list(self) -> Sequence[ObjectT]:
        """All objects, as of now, in no particular order."""
        with self._lock:
            return [*self._objects.values()]

    def by_index(self, index: str, value: str) -> Sequence[ObjectT]:
        """All objects for which the index function returned this value. Raises KeyError for an unknown index."""
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
        """The version up to which all changes have been seen; 0 before the first list."""
        return self._version

    @property
    def is_synced(self) -> bool:
        """Whether a complete list has been stored; stays True."""
        return self._synced

    # For writers to the API

    def assume(self, obj: ObjectT) -> bool:
        """Store an object from the response to a write of it, or to its deletion; returns False if the watch is ahead.

        Listeners are notified as of any other change, and the watch's event with the same version then changes nothing.
        Only for objects that belong to this store's collection: right namespace, right labels.
        """
        key, version = key_of(obj), version_of(obj)
        with self._lock:
            if version <= self._version or version <= self._stored_version(key):
                return False
            self._assumed[key] = version
            self._put(key, obj)
            return True

    # For the informer

    def replace(self, objects: Iterable[ObjectT], version: int, unreadable: Collection[str] = ()) -> None:
        """Take a complete list. Keys in `unreadable` exist but could not be decoded: their old state stays."""
        fresh = {key_of(obj): obj for obj in objects}
        with self._lock:
            is_restored = version < self._version
            self._assumed = {} if is_restored else {k: v for k, v in self._assumed.items() if v > version}
            self._version = version
            for key in [key for key in self._objects if key not in fresh and key not in self._assumed]:
                if key not in unreadable:
                    self._drop(key, None)
            for key, obj in fresh.items():
                if key not in self._assumed and self._stored_version(key) != version_of(obj):
                    self._put(key, obj)
            self._announce_sync()

    def upsert(self, obj: ObjectT) -> None:
        """An ADDED or MODIFIED event. One that is older than the stored state is dropped."""
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
        """An event whose object could not be decoded: the stored state stays."""
        with self._lock:
            self._version = max(self._version, version)
            if version >= self._stored_version(key):
                self._assumed.pop(key, None)

    def bookmark(self, version: int) -> None:
        """The watch has passed this version: objects assumed up to it and never confirmed are dropped."""
        with self._lock:
            self._version = max(self._version, version)
            for key in [key for key, assumed in self._assumed.items() if assumed <= version]:
                log.warning("assumed object dropped, not seen by the watch", key=key)
                self._drop(key, None)

    def subscribe(self, listener: Listener[ObjectT]) -> None:
        """Tell `listener` the present state as additions, then every change, in order and once each.

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
            # Deleted and recreated in between: listeners need not compare uids.
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
    """Value → keys of the objects that have it. Guarded by the store's lock."""

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
        """Move `key` from the values of `old` to those of `new`; None means no object."""
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
            # One malformed object must not stop the cache of all others: it is only missing from this index.
            log.exception("index function failed", index=self._name, key=key)
            return frozenset()
