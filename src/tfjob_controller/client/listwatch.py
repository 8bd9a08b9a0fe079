"""Lists and watches jobs in the caller's own thread: one job until a deadline, or the rows of a table forever.

Theory of operation. `ListWatchState` decides which request comes next and what its failure means (a broken connection,
a compacted version, a server without streaming lists); `ListWatcher` sends it. Failures that only a person can correct
(missing rights, an expired login, an unknown kind) are raised; after any other failure the watcher backs off and tries
again until its deadline. A timer closes the stream at the deadline, so that a silent connection cannot outlast it.

Source: kube/cache/reflector.py, which does the same for caches; kubectl pkg/cmd/get (`--watch`); apiserver
pkg/endpoints/handlers/response.go (events as tables).
"""

from __future__ import annotations

import functools
import math
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol

import msgspec

from tfjob_controller.client.errors import CLOSED
from tfjob_controller.client.kinds import Snapshot, snapshot_decoder
from tfjob_controller.client.reader import TABLE, Connection, Reader, TableRow
from tfjob_controller.kinds.clientkind import ClientKind
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
from tfjob_controller.kube.codec import decode_list, decoder_for
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.meta import Decode, ObjectMeta, ObjectT, key_of, version_of
from tfjob_controller.kube.requester import LineStream
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

# The server sends a bookmark each minute; see kube/cache/reflector.py.
_SILENT_SECONDS = 70.0
_WATCH_SECONDS = 300.0
_LIST_TIMEOUT_SECONDS = 30.0
# The maximum number of rows that wait to be printed; further rows are not read from the connection.
_MAX_QUEUED_ROWS = 500


class TableStreams(Protocol):
    """A transport that can request watch events as tables."""

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, accept: str = ...
    ) -> LineStream: ...


def is_permanent(error: ApiError) -> bool:
    """Reports whether only a user can correct the reason of the error."""
    return error.is_forbidden or error.is_unauthorized or error.reason == CLOSED


@contextmanager
def closed_after(seconds: float, close: Callable[[], None]) -> Iterator[None]:
    """Calls `close` in a thread of its own unless the block ends within `seconds`."""
    if seconds == math.inf:
        yield
        return
    timer = threading.Timer(max(0.0, min(seconds, threading.TIMEOUT_MAX)), close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ListWatcher(Generic[ObjectT]):
    """Lists and watches. Not thread-safe. `open_stream` and `list_objects` get a query and a timeout in seconds.

    With `version` it starts to watch at that version, and uses lists instead of streaming lists. `on_interruption` is
    called when a request fails.
    """

    def __init__(
        self,
        open_stream: Callable[[dict[str, str], float], LineStream],
        list_objects: Callable[[dict[str, str], float], ReplaceDelta[ObjectT]],
        decode: Decode[ObjectT],
        clock: Clock,
        *,
        deadline: float = math.inf,
        version: int | None = None,
        on_interruption: Callable[[ApiError], None] | None = None,
    ) -> None:
        self._open_stream = open_stream
        self._list_objects = list_objects
        self._has_streaming_lists = version is None
        self._clock = clock
        self._deadline = deadline
        self._on_interruption = on_interruption
        self._reader = ObjectReader(decode)
        self._backoff = DecorrelatedBackoff(clock, random.Random())  # noqa: S311 -- spreads load, guards nothing
        self._state = ListWatchState()
        if version is not None:
            self._state.record_list(version)

    def deltas(self) -> Iterator[Delta[ObjectT]]:
        """Yields lists and changes until the deadline. Raises `ApiError` for a permanent failure."""
        while self._remaining_seconds() > 0:
            yield from self._next_request()

    def _remaining_seconds(self) -> float:
        return self._deadline - self._clock.monotonic()

    def _next_request(self) -> Iterator[Delta[ObjectT]]:
        begin, opened = self._clock.monotonic(), False
        try:
            mode = self._state.mode
            if mode is RequestMode.LIST or (mode is RequestMode.STREAM and not self._has_streaming_lists):
                timeout = max(0.001, min(_LIST_TIMEOUT_SECONDS, self._remaining_seconds()))
                yield self._recorded(self._list_objects(self._state.query(0), timeout))
                return
            with self._stream() as lines:
                opened = True
                yield from self._watch(lines)
        except ApiError as error:
            if is_permanent(error) or (error.is_not_found and not opened):
                raise
            if self._state.lacks_streaming_lists(error):
                self._state.record_failure(error)
                return
            silent = opened and self._clock.monotonic() - begin >= _SILENT_SECONDS
            self._state.record_failure(error, opened=opened, silent=silent)
            if self._on_interruption is not None and not opened:
                self._on_interruption(error)
            delay = self._backoff.next_seconds(error.retry_after_seconds or 0.0)
            self._clock.sleep(min(delay, max(0.0, self._remaining_seconds())), threading.Event())

    @contextmanager
    def _stream(self) -> Iterator[LineStream]:
        left = max(0.001, self._remaining_seconds())
        query = self._state.query(math.ceil(min(_WATCH_SECONDS, left)))
        with (
            self._open_stream(query, min(_SILENT_SECONDS, left)) as lines,
            closed_after(self._remaining_seconds(), lines.close),
        ):
            yield lines

    def _watch(self, lines: LineStream) -> Iterator[Delta[ObjectT]]:
        decoder = WatchDecoder(self._reader, initial_events=self._state.mode is RequestMode.STREAM)
        has_begun = False
        for line in lines:
            has_begun = True
            if (delta := decoder.feed(line)) is not None:
                yield self._recorded(delta)
            if self._remaining_seconds() <= 0:
                return
        if (decoder.is_listing or not has_begun) and self._remaining_seconds() > 0:
            raise ApiError(NO_RESPONSE, "CutShort", "the watch ended before it had begun")

    def _recorded(self, delta: Delta[ObjectT]) -> Delta[ObjectT]:
        if isinstance(delta, ReplaceDelta):
            self._state.record_list(delta.version)
        else:
            self._state.record_progress(version_of_delta(delta))
        return delta


def watch_job(
    connection: Connection, kind: ClientKind, namespace: str, name: str, deadline: float
) -> Iterator[Snapshot | None]:
    """Yields the state of a job now and after each change until `deadline` (monotonic); None while it does not exist.

    Raises `ApiError` for a permanent failure.
    """
    requester, path = connection.requester, kind.resource.path(namespace)
    selector = {"fieldSelector": f"metadata.name={name}"}
    reader = ObjectReader(snapshot_decoder(kind))

    def open_stream(query: dict[str, str], timeout_seconds: float) -> LineStream:
        return requester.stream(path, query=query | selector, read_timeout_seconds=timeout_seconds)

    def list_job(query: dict[str, str], timeout_seconds: float) -> ReplaceDelta[Snapshot]:
        body = requester.request("GET", path, query=query | selector, timeout_seconds=timeout_seconds, retry=False)
        try:
            page = decode_list(body)
            found = (reader.read(item) for item in page.items)
            return replace_of({key_of(each): each for each in found}, int(page.resource_version))
        except ValueError as error:
            raise ApiError(NO_RESPONSE, "BrokenList", f"the response is not a list: {error}") from None

    watcher = ListWatcher(open_stream, list_job, snapshot_decoder(kind), connection.clock, deadline=deadline)
    for delta in watcher.deltas():
        if isinstance(delta, ReplaceDelta):
            yield delta.objects[0] if delta.objects else None
        elif isinstance(delta, UpsertDelta):
            yield delta.obj
        elif isinstance(delta, DeleteDelta):
            yield None


class _RowObject(msgspec.Struct, frozen=True):
    """A row with its metadata in the field where objects have it."""

    metadata: ObjectMeta
    row: TableRow


class _EventTable(msgspec.Struct, frozen=True):
    """The table of one event; its column definitions are null after the first event."""

    rows: list[TableRow] | None = None


_decode_table = decoder_for(_EventTable)


def _decode_row(raw: bytes | msgspec.Raw) -> _RowObject:
    rows = _decode_table(raw).rows
    if not rows:
        raise ValueError("the server sent a table without a row")
    return _RowObject(rows[0].object.metadata, rows[0])


def watch_rows(
    streams: TableStreams, reader: Reader, version: int, notify: Callable[[str], None], clock: Clock
) -> Iterator[TableRow]:
    """Yields the row of each job that is added, changed or deleted after `version`, without end.

    `notify` is called once for each interruption, with its reason. After a relist only newer rows follow; deletions
    that happened in between are not visible. Raises `ApiError` for a permanent failure.
    """
    path = reader.kind.resource.path(reader.namespace)
    selector = reader.selectors
    notified = ""

    def open_stream(query: dict[str, str], timeout_seconds: float) -> LineStream:
        return streams.stream(path, query=query | selector, read_timeout_seconds=timeout_seconds, accept=TABLE)

    def list_rows(query: dict[str, str], timeout_seconds: float) -> ReplaceDelta[_RowObject]:
        pages = list(reader.tables())
        rows = tuple(_RowObject(row.object.metadata, row) for page in pages for row in page.rows or ())
        return ReplaceDelta(rows, int(pages[0].metadata.resource_version))

    def on_interruption(error: ApiError) -> None:
        nonlocal notified
        if error.message != notified:
            notify(f"{error.message}; trying again")
            notified = error.message

    watcher = ListWatcher(open_stream, list_rows, _decode_row, clock, version=version, on_interruption=on_interruption)
    for delta in watcher.deltas():
        if isinstance(delta, ReplaceDelta):
            yield from (obj.row for obj in delta.objects if version_of(obj) > version)
        elif isinstance(delta, UpsertDelta):
            yield delta.obj.row
        elif isinstance(delta, DeleteDelta) and delta.last_state is not None:
            yield delta.last_state.row
        version = version_of_delta(delta)


def merge_rows(watches: Sequence[Iterator[TableRow]]) -> Iterator[tuple[int, TableRow]]:
    """Yields the rows of all watches as they arrive, with the index of the watch. Raises the exception of a watch.

    Each watch is read by a thread of its own, which blocks while the queue of rows is full.
    """
    items: queue.Queue[tuple[int, TableRow] | Exception] = queue.Queue(_MAX_QUEUED_ROWS)

    def read(index: int, rows: Iterator[TableRow]) -> None:
        try:
            for row in rows:
                items.put((index, row))
        except Exception as error:  # the caller has to see any failure
            items.put(error)

    # Daemons, since Ctrl-C must end the program while they read.
    for index, rows in enumerate(watches):
        threading.Thread(target=functools.partial(read, index, rows), name=f"watch-{index}", daemon=True).start()
    while True:
        item = items.get()
        if isinstance(item, Exception):
            raise item
        yield item
