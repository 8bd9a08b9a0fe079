"""One job as it changes: a watch that goes on after what ends watches.

Theory of operation. `Course` says which request is next and what its end means (a broken connection, a version that is
compacted away, a server that knows no streaming lists); this module sends it, in the caller's own thread. What can only
be mended by a person (no rights, not logged in, no such kind) is raised; everything else rests and is tried again until
the deadline. So that a silent connection cannot outlast the deadline, a timer closes the stream then.

Source: kube/cache/reflector.py, which does the same for caches, for ever and in a thread.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tfjob_controller.client.connection import Connection
from tfjob_controller.client.errors import CLOSED
from tfjob_controller.client.kinds import JobKind, Snapshot, snapshot_decoder
from tfjob_controller.kube.cache.listwatch import ListWatchState, RequestMode
from tfjob_controller.kube.cache.watchdecoder import (
    DeleteDelta,
    Delta,
    ObjectReader,
    ReplaceDelta,
    UpsertDelta,
    WatchDecoder,
    replace_of,
    version_of_delta,
)
from tfjob_controller.kube.codec import decode_list
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.requester import LineStream
from tfjob_controller.util.backoff import DecorrelatedBackoff

# See kube/cache/reflector.py: bookmarks come each minute.
_SILENT_SECONDS = 70.0
_WATCH_SECONDS = 300.0
_ANSWER_SECONDS = 30.0


def watch(
    connection: Connection, kind: JobKind, namespace: str, name: str, deadline: float
) -> Iterator[Snapshot | None]:
    """Its state now and after each change, None while it is not there; ends at `deadline` (monotonic).

    Raises `ApiError` for what no waiting mends.
    """
    watcher = _Watcher(connection, kind, namespace, name, deadline)
    while watcher.left() > 0:
        yield from watcher.next_request()


@contextmanager
def closed_after(seconds: float, close: Callable[[], None]) -> Iterator[None]:
    """Calls `close` in a thread of its own if the block has not ended by then, so that nothing in it waits longer."""
    timer = threading.Timer(max(0.0, min(seconds, threading.TIMEOUT_MAX)), close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_final(error: ApiError) -> bool:
    """Whether only a person can change what the server refused."""
    return error.is_forbidden or error.is_unauthorized or error.reason == CLOSED


class _Watcher:
    """For one thread."""

    def __init__(self, connection: Connection, kind: JobKind, namespace: str, name: str, deadline: float) -> None:
        self._requester = connection.requester
        self._clock = connection.clock
        self._path = kind.resource.path(namespace)
        self._name = name
        self._deadline = deadline
        self._reader = ObjectReader(snapshot_decoder(kind))
        self._state = ListWatchState()
        self._backoff = DecorrelatedBackoff(self._clock, random.Random())  # noqa: S311 -- spreads load, guards nothing

    def left(self) -> float:
        return self._deadline - self._clock.monotonic()

    def next_request(self) -> Iterator[Snapshot | None]:
        """What one list or watch says; rests after one that failed."""
        begin, opened = self._clock.monotonic(), False
        try:
            if self._state.mode is RequestMode.LIST:
                yield from self._told(self._list())
                return
            with self._stream() as lines:
                opened = True
                yield from self._follow(lines)
        except ApiError as error:
            if is_final(error) or (error.is_not_found and not opened):
                raise
            silent = opened and self._clock.monotonic() - begin >= _SILENT_SECONDS
            self._state.record_failure(error, opened=opened, silent=silent)
            self._rest(error)

    def _rest(self, error: ApiError) -> None:
        seconds = self._backoff.next_seconds(error.retry_after_seconds or 0.0)
        self._clock.sleep(min(seconds, max(0.0, self.left())), threading.Event())

    def _query(self, seconds: float = 0.0) -> dict[str, str]:
        return self._state.query(math.ceil(seconds)) | {"fieldSelector": f"metadata.name={self._name}"}

    def _list(self) -> Delta[Snapshot]:
        timeout = max(0.001, min(_ANSWER_SECONDS, self.left()))
        body = self._requester.request("GET", self._path, query=self._query(), timeout_seconds=timeout, retry=False)
        try:
            page = decode_list(body)
            found = (self._reader.read(item) for item in page.items)
            return replace_of({key_of(each): each for each in found}, int(page.resource_version))
        except ValueError as error:
            raise ApiError(NO_RESPONSE, "BrokenList", f"the server sent what is no list: {error}") from None

    @contextmanager
    def _stream(self) -> Iterator[LineStream]:
        """Closed at the deadline, whoever reads it."""
        left = max(0.001, self.left())
        query = self._query(min(_WATCH_SECONDS, left))
        with (
            self._requester.stream(self._path, query=query, read_timeout_seconds=min(_SILENT_SECONDS, left)) as lines,
            closed_after(self.left(), lines.close),
        ):
            yield lines

    def _follow(self, lines: LineStream) -> Iterator[Snapshot | None]:
        decoder = WatchDecoder(self._reader, initial_events=self._state.mode is RequestMode.STREAM)
        heard = False
        for line in lines:
            heard = True
            if (event := decoder.feed(line)) is not None:
                yield from self._told(event)
            if self.left() <= 0:
                return
        if (decoder.is_listing or not heard) and self.left() > 0:
            raise ApiError(NO_RESPONSE, "CutShort", "the watch ended before it had begun")

    def _told(self, event: Delta[Snapshot]) -> Iterator[Snapshot | None]:
        if isinstance(event, ReplaceDelta):
            self._state.record_list(event.version)
            yield event.objects[0] if event.objects else None
            return
        self._state.record_progress(version_of_delta(event))
        if isinstance(event, UpsertDelta):
            yield event.obj
        elif isinstance(event, DeleteDelta):
            yield None
