"""A collection of `Thing`s on a server in memory, with watches that many threads may read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from helpers.answering import Answering
from helpers.things import THINGS, Thing, bookmark, decode_thing, line, thing
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import key_of, version_of


class MemoryCollection(Answering):
    """A `Requester`, and the `Collection` (informercontract.py) that it serves; streaming lists only. Thread-safe."""

    resource = THINGS
    namespace = "ns"
    label_selector = ""
    decode = staticmethod(decode_thing)

    def __init__(self) -> None:
        super().__init__()
        self.requester = self
        self._changed = threading.Condition()
        self._history: list[tuple[str, Thing]] = []
        self._objects: dict[str, Thing] = {}
        self._version = 10
        self._compacted = 0
        self._streams: list[_Lines] = []

    def put(self, name: str, size: int) -> Thing:
        with self._changed:
            old = self._objects.get(f"ns/{name}")
            self._version += 1
            uid = old.metadata.uid if old else f"uid-{self._version}"
            obj = self._objects[f"ns/{name}"] = thing(name, self._version, uid=uid, size=size)
            self._record("MODIFIED" if old else "ADDED", obj)
            return obj

    def remove(self, name: str) -> None:
        with self._changed:
            old = self._objects.pop(f"ns/{name}")
            self._version += 1
            self._record("DELETED", thing(name, self._version, uid=old.metadata.uid, size=old.size))

    def cut(self) -> None:
        with self._changed:
            for stream in self._streams:
                stream.is_cut = True
            self._streams.clear()
            self._changed.notify_all()

    def expire(self) -> None:
        """Drops the history: watches from older versions are refused."""
        with self._changed:
            self._compacted = self._version

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float) -> _Lines:
        with self._changed:
            since = int(query.get("resourceVersion") or 0)
            if "sendInitialEvents" in query:
                first = [line("ADDED", obj) for obj in sorted(self._objects.values(), key=key_of)]
                lines = _Lines(self._changed, self._history, self._version)
                lines.first = [*first, bookmark(self._version, ends_list=True)]
            elif since < self._compacted:
                raise ApiError(410, "Expired", "too old resource version")
            else:
                lines = _Lines(self._changed, self._history, since)
            self._streams.append(lines)
            return lines

    def _record(self, type_: str, obj: Thing) -> None:
        self._history.append((type_, obj))
        self._changed.notify_all()


class _Lines:
    def __init__(self, changed: threading.Condition, history: list[tuple[str, Thing]], since: int) -> None:
        self._changed = changed
        self._history = history
        self._since = since
        self._closed = False
        self.is_cut = False
        self.first: list[bytes] = []

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        yield from self.first
        while (change := self._next()) is not None:
            yield line(*change)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> tuple[str, Thing] | None:
        with self._changed:
            while not self._closed:
                if self.is_cut:
                    raise ApiError(0, "ConnectionBroken", "the stream broke off")
                later = [change for change in self._history if version_of(change[1]) > self._since]
                if later:
                    self._since = version_of(later[0][1])
                    return later[0]
                self._changed.wait()
            return None
