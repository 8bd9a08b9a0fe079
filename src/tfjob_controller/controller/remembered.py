"""Objects that are written, but watched by no informer: what is remembered of them is what the API server answered.

Secrets are such: whoever may watch some of them may read all, so this controller asks for no such right. It remembers
that it has made one. What it has forgotten, by a restart or for want of room, it makes again, and is told that it is
there.
"""

from __future__ import annotations

import threading
from typing import Generic

from cachetools import LRUCache

from tfjob_controller.kube.meta import ObjectT, key_of

# Of each some hundred bytes; more jobs than that do not start at one time.
_MOST = 2000


class Remembered(Generic[ObjectT]):
    """Any thread. Takes what a `Store` takes of answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: LRUCache[str, ObjectT] = LRUCache(_MOST)

    def get(self, key: str) -> ObjectT | None:
        with self._lock:
            return self._by_key.get(key)

    def assume(self, obj: ObjectT) -> bool:
        with self._lock:
            self._by_key[key_of(obj)] = obj
        return True
