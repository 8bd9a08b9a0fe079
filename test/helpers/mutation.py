"""Detects changes of cached objects, which all readers share.

Attach one to a store before it fills; `check` at the end compares every object that was in the store with its original
state. Frozen types prevent assignments, but not changes of a dict or list inside. Source: client-go
tools/cache/mutation_detector.go.
"""

from __future__ import annotations

import threading
from typing import Generic

import msgspec

from tfjob_controller.kube.cache.store import Added, Change, Store, Updated
from tfjob_controller.kube.meta import ObjectT, key_of


class MutationDetector(Generic[ObjectT]):
    """Keeps a copy of each object at the time when it enters the store."""

    def __init__(self, store: Store[ObjectT]) -> None:
        self._lock = threading.Lock()
        self._seen: list[tuple[ObjectT, bytes]] = []
        store.subscribe(self._take)

    def check(self) -> None:
        """Raises AssertionError if an object has changed."""
        with self._lock:
            for obj, was in self._seen:
                now = msgspec.json.encode(obj)
                assert now == was, f"{key_of(obj)} was changed in the cache:\n  was {was!r}\n  is  {now!r}"

    def _take(self, change: Change[ObjectT]) -> None:
        obj = change.obj if isinstance(change, Added) else change.new if isinstance(change, Updated) else None
        if obj is not None:
            with self._lock:
                self._seen.append((obj, msgspec.json.encode(obj)))
