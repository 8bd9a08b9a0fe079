"""Finds out who changes an object of a cache, which everybody shares.

Attach one to a store before it fills; `check` at the end compares every object that ever was in the store with what it
was then. Frozen types stop assignments, but not the change of a dict or list inside.
Source: client-go tools/cache/mutation_detector.go.
"""

from __future__ import annotations

import threading
from typing import Generic

import msgspec

from tfjob_controller.kube.cache.store import Added, Change, Store, Updated
from tfjob_controller.kube.meta import ObjectT, key_of


class MutationDetector(Generic[ObjectT]):
    """Remembers each object of a store as it was when it came."""

    def __init__(self, store: Store[ObjectT]) -> None:
        self._lock = threading.Lock()
        self._seen: list[tuple[ObjectT, bytes]] = []
        store.subscribe(self._take)

    def check(self) -> None:
        """AssertionError if an object is not what it was."""
        with self._lock:
            for obj, was in self._seen:
                now = msgspec.json.encode(obj)
                assert now == was, f"{key_of(obj)} was changed in the cache:\n  was {was!r}\n  is  {now!r}"

    def _take(self, change: Change[ObjectT]) -> None:
        obj = change.obj if isinstance(change, Added) else change.new if isinstance(change, Updated) else None
        if obj is not None:
            with self._lock:
                self._seen.append((obj, msgspec.json.encode(obj)))
