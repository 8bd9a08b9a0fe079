"""The jobs of one kind as they change, in rows of the server's table: what `list --watch` prints after its table.

`Course` says whether to watch on or to list anew after a watch has ended; this module sends the request, in the
caller's own thread. Only what a person must change (no rights, no such kind) is raised; after anything else it rests
and tries again. Rows are handed on and not kept.

Source: kubectl pkg/cmd/get (`--watch`), apiserver pkg/endpoints/handlers/response.go (events as tables).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from tfjob_controller.client.listwatch import is_final
from tfjob_controller.client.reader import TABLE, Reader, TableRow
from tfjob_controller.kube.cache.listwatch import ListWatchState, RequestMode
from tfjob_controller.kube.cache.watchdecoder import (
    DeleteDelta,
    ObjectReader,
    UpsertDelta,
    WatchDecoder,
    version_of_delta,
)
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.meta import ObjectMeta, version_of
from tfjob_controller.kube.requester import LineStream
from tfjob_controller.util.clock import Clock, RealClock

_WATCH_SECONDS = 300
# Bookmarks come each minute.
_SILENT_SECONDS = 70.0
_REST_SECONDS = 2.0
# Rows that wait to be printed; more stay with the server.
_MOST_WAITING = 500


class TableStreams(Protocol):
    """What is needed of a transport: watches whose events are tables."""

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, accept: str = ...
    ) -> LineStream: ...


class _Shown(msgspec.Struct, frozen=True):
    """A row with its metadata where objects have it."""

    metadata: ObjectMeta
    row: TableRow


class _EventTable(msgspec.Struct, frozen=True):
    """An event's table; its column definitions are null after the first event."""

    rows: list[TableRow] | None = None


_decode_table = decoder_for(_EventTable)


def _decode_row(raw: bytes | msgspec.Raw) -> _Shown:
    rows = _decode_table(raw).rows
    if not rows:
        raise ValueError("the server sent a table without a row")
    return _Shown(rows[0].object.metadata, rows[0])


class RowWatch:
    """For one thread. `version` is that of the list that was shown; `say` is told once of what interrupts the watch."""

    def __init__(
        self,
        streams: TableStreams,
        reader: Reader,
        version: int,
        say: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._streams = streams
        self._reader = reader
        self._say = say
        self._clock = clock or RealClock()
        self._rows = ObjectReader(_decode_row)
        self._state = ListWatchState()
        self._state.record_list(version)
        self._said = ""

    def rows(self) -> Iterator[TableRow]:
        """Each row that was added, changed or deleted, for ever. Raises `ApiError`."""
        while True:
            yield from self._next_request()

    def _next_request(self) -> Iterator[TableRow]:
        begin, opened = self._clock.monotonic(), False
        try:
            if self._state.mode is not RequestMode.WATCH:
                yield from self._listed_anew()
                return
            with self._stream() as lines:
                opened = True
                yield from self._followed(lines)
        except ApiError as error:
            if is_final(error) or (error.is_not_found and not opened):
                raise
            silent = opened and self._clock.monotonic() - begin >= _SILENT_SECONDS
            self._state.record_failure(error, opened=opened, silent=silent)
            if not (opened or error.message == self._said):
                self._say(f"{error.message}; trying again")
                self._said = error.message
            self._clock.sleep(error.retry_after_seconds or _REST_SECONDS, threading.Event())

    def _listed_anew(self) -> Iterator[TableRow]:
        """What is newer than the last event; deletions that were missed cannot be told."""
        known, version = self._state.version, 0
        for table in self._reader.tables():
            version = version or int(table.metadata.resource_version)
            for row in table.rows or ():
                if version_of(_Shown(row.object.metadata, row)) > known:
                    yield row
        self._state.record_list(version)

    def _stream(self) -> LineStream:
        reader = self._reader
        query = self._state.query(_WATCH_SECONDS)
        if reader.label_selector:
            query["labelSelector"] = reader.label_selector
        path = reader.kind.resource.path(reader.namespace)
        return self._streams.stream(path, query=query, read_timeout_seconds=_SILENT_SECONDS, accept=TABLE)

    def _followed(self, lines: LineStream) -> Iterator[TableRow]:
        decoder = WatchDecoder(self._rows, initial_events=False)
        heard = False
        for line in lines:
            heard = True
            event = decoder.feed(line)
            if event is None:
                continue
            self._state.record_progress(version_of_delta(event))
            if isinstance(event, UpsertDelta):
                yield event.obj.row
            elif isinstance(event, DeleteDelta) and event.last_state is not None:
                yield event.last_state.row
        if not heard:
            raise ApiError(NO_RESPONSE, "CutShort", "the watch ended before it had begun")


def merged(watches: Sequence[RowWatch]) -> Iterator[tuple[int, TableRow]]:
    """The rows of all, each with the place of its watch, as they come. Raises what one of the watches raises.

    Each is read by a thread of its own, which waits while nobody takes its rows.
    """
    items: queue.Queue[tuple[int, TableRow] | Exception] = queue.Queue(_MOST_WAITING)

    def read(index: int, watch: RowWatch) -> None:
        try:
            for row in watch.rows():
                items.put((index, row))
        except Exception as error:  # whatever it is, who takes the rows must hear of it
            items.put(error)

    # Daemons, since Ctrl-C must end the program while they read.
    for index, watch in enumerate(watches):
        threading.Thread(target=read, args=(index, watch), name=f"watch-{index}", daemon=True).start()
    while True:
        item = items.get()
        if isinstance(item, Exception):
            raise item
        yield item
