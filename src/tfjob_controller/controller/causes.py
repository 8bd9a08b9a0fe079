"""What caused a sync: which event of which object put its key on the queue. For debug lines only.

Several events come together in one sync, so what is noted for a key is collected until a sync takes it. Unless it is
enabled nothing is noted, and a note costs the look at one flag: informers deliver thousands of events per second.
"""

from __future__ import annotations

import threading

import structlog

from tfjob_controller.kube.meta import Object

log = structlog.get_logger(__name__)

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
# A thousand pods may start in one swarm: the first ones tell what it was.
MAX_TOLD = 20


class Causes:
    """Notes of one queue. Thread-safe."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._noted: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def note(self, key: str, type_: str, obj: Object) -> None:
        """An event of `obj` concerns `key`. To be called before the key is queued."""
        if self._enabled:
            meta = obj.metadata
            self._note(key, f"{type_} {type(obj).__name__} {meta.name} resourceVersion={meta.resource_version}")

    def note_timer(self, key: str, seconds: float) -> None:
        """The sync of `key` that ends now wants another after so many seconds."""
        if self._enabled:
            self._note(key, f"asked for {seconds:.3g} s ago, or earlier")

    def tell(self, key: str) -> None:
        """A sync of `key` begins: say what is noted, and forget it."""
        if not self._enabled:
            return
        with self._lock:
            noted, count = self._noted.pop(key, []), self._counts.pop(key, 0)
        log.debug("sync begins", causes=noted, causes_left_out=count - len(noted))

    def _note(self, key: str, words: str) -> None:
        with self._lock:
            noted = self._noted.setdefault(key, [])
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(noted) < MAX_TOLD:
                noted.append(words)


UNKNOWN = Causes(enabled=False)
