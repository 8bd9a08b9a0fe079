"""One long answer, read line by line, that any thread can end.

Theory of operation. A watch is an HTTP answer without an end; each event is a line. The reader holds `_reading` only
while it reads from the socket. `close` shuts the socket down, which wakes a reader that is blocked in it, then waits
for that lock (the reader is on its way out) and frees the connection: so no file descriptor is closed under a thread
that still uses it.

A connection that only one side believes in brings nothing, no error either: the read time-out is what notices. It
counts from the last bytes, so it must be longer than the server's silence (bookmarks come about once a minute).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import urllib3
from urllib3.response import BaseHTTPResponse

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError

# What one read takes at most: TLS records hold 16 KiB, and small events come in chunks of their own anyway.
_READ_BYTES = 65536


class HttpLineStream:
    """The lines of an answer. One thread iterates, once; any thread may `close`, any number of times.

    Iterating gives each line as bytes without its end, ends when the server ends the answer or after `close`, and
    raises `ApiError` (no response) when the connection breaks or is silent for longer than the read time-out.
    """

    def __init__(self, response: BaseHTTPResponse, on_closed: Callable[[HttpLineStream], None] | None = None) -> None:
        self._response = response
        self._on_closed = on_closed
        self._reading = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> HttpLineStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        pending: list[bytes] = []
        while data := self._read():
            if b"\n" not in data:
                pending.append(data)  # a line longer than one read
                continue
            first, *lines = data.split(b"\n")
            yield b"".join((*pending, first)) if pending else first
            last = lines.pop()
            pending = [last] if last else []
            for line in lines:
                if self._closed.is_set():
                    return
                yield line
        if pending and not self._closed.is_set():
            yield b"".join(pending)

    def close(self) -> None:
        """End the stream now; a thread that is reading it comes out. Returns when the connection is free."""
        if self._closed.is_set():
            return
        self._closed.set()
        # Raised if the answer has ended already and the connection went back to its pool.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._response.shutdown()
        with self._reading:
            self._response.close()
        if self._on_closed:
            self._on_closed(self)

    def _read(self) -> bytes:
        """Some bytes as they come; none at the end."""
        with self._reading:
            if self._closed.is_set():
                return b""
            try:
                return self._response.read1(_READ_BYTES)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if self._closed.is_set():
                    return b""
                raise _broken(error) from error


def _broken(error: Exception) -> ApiError:
    if isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError)):
        return ApiError(NO_RESPONSE, "Timeout", "the stream was silent for longer than its read time-out")
    return ApiError(NO_RESPONSE, "ConnectionBroken", "the stream broke off")
