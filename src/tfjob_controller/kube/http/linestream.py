"""One long response, read line by line, that any thread can end.

Theory of operation. A watch is an HTTP response without an end; each event is a line. The reader holds `_reading` only
while it reads from the socket. `close` shuts the socket down, which wakes a reader that is blocked in it, then waits
for that lock and returns the connection to its pool: no file descriptor is closed under a thread that still uses it.

A half-open connection brings neither bytes nor an error; only the read time-out notices it. It counts from the last
bytes, so it must be longer than the server's silence (bookmarks come about once a minute).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.http.connectionpool import shut_down
from tfjob_controller.kube.http.exchange import READ_BYTES, UnreadBody, feed


class HttpLineStream:
    """The lines of a response. One thread iterates, once; any thread may `close`, any number of times.

    Iterating yields each line as bytes without the newline. It stops when the server ends the response, or after
    `close`, and raises `ApiError` (no response) when the connection breaks or is silent for longer than the
    read time-out. Of a line with more than `max_line_bytes` only these first ones are kept; 0 keeps all.
    """

    def __init__(
        self,
        body: UnreadBody,
        read_timeout_seconds: float,
        on_closed: Callable[[HttpLineStream], None] | None = None,
        max_line_bytes: int = 0,
    ) -> None:
        self._body = body
        self._read_timeout_seconds = read_timeout_seconds
        self._on_closed = on_closed
        self._max_line_bytes = max_line_bytes
        self._reading = threading.Lock()
        self._closing = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> HttpLineStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        for line in split_lines(iter(self._read, b""), self._max_line_bytes):
            if self._closed.is_set():
                return
            yield line

    def close(self) -> None:
        """Ends the stream at once, also for a thread that reads it. Returns when the connection is free."""
        with self._closing:
            if self._closed.is_set():
                return
            self._closed.set()
            is_whole = self._body.parser.is_whole
            if not is_whole:
                shut_down(self._body.connection)
            with self._reading:
                self._body.release(is_reusable=is_whole and self._body.parser.is_reusable)
        if self._on_closed:
            self._on_closed(self)

    def _read(self) -> bytes:
        """Returns the next bytes that arrive; none at the end."""
        with self._reading:
            parser, connection = self._body.parser, self._body.connection.sock
            while not self._closed.is_set():
                if data := parser.take():
                    return data
                if parser.is_whole:
                    break
                try:
                    connection.settimeout(self._read_timeout_seconds)
                    feed(parser, connection.recv(READ_BYTES))
                except OSError as error:
                    if self._closed.is_set():
                        break
                    raise _broken(error) from error
            return b""


def split_lines(pieces: Iterable[bytes], max_bytes: int = 0) -> Iterator[bytes]:
    """Yields the lines of a text that arrives in pieces, without newlines.

    With `max_bytes` each line is cut there, and little more than that is kept of a line that is still arriving.
    """
    end = max_bytes or None
    pending: list[bytes] = []
    size = 0
    for data in pieces:
        if b"\n" not in data:  # a line longer than one piece
            if end is None or size < end:
                pending.append(data)
                size += len(data)
            continue
        first, *lines = data.split(b"\n")
        yield b"".join((*pending, first))[:end] if pending else first[:end]
        last = lines.pop()
        pending, size = ([last], len(last)) if last else ([], 0)
        for line in lines:
            yield line[:end]
    if any(pending):
        yield b"".join(pending)[:end]


def _broken(error: OSError) -> ApiError:
    if isinstance(error, TimeoutError):
        return ApiError(NO_RESPONSE, "Timeout", "the stream was silent for longer than its read time-out")
    return ApiError(NO_RESPONSE, "ConnectionBroken", "the stream broke off")
