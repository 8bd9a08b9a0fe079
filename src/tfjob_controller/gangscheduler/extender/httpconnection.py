"""HTTP/1.1 on one connection, as far as kube-scheduler and the gang scheduler need it.

Theory of operation. httptools (C) parses the bytes from the event loop into complete `Request`s, which are passed to
the application; it replies at once or later. A connection is in one of these states:

    READING ──── request complete ────▶ BUSY ──── reply ────▶ READING, or closed
                                         │
          further requests are queued ───┘ nothing more is read until they were answered

A body that is too long is read to its end and dropped, so that its sender reads the response; an excessive one is cut
off. A connection never holds more than `MAX_BODY_BYTES` and `MAX_HEAD_BYTES`, nor more than one unread response:
further requests wait meanwhile. A connection without any progress for `IDLE_SECONDS` (no request arrives, one stays
incomplete, a response is not read) is closed. One that is BUSY may wait without limit.

It is code of its own because kube-scheduler waits for it: an ASGI server with a task for each call took three times as
long.

Threads: everything, including replies, runs in the event loop's. Source: RFC 9112; asyncio's Protocol.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools

# The names of 15,000 nodes and the largest pod that etcd stores (1.5 MB) take less than 3 MB.
MAX_BODY_BYTES = 4 * 1024 * 1024
_MAX_DROPPED_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
# Longer than Go's client keeps an idle connection (90 s), so that the client never uses one that was just closed.
IDLE_SECONDS = 120.0

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request. `target` is as sent; `begin` is on the event loop's clock."""

    method: bytes
    target: bytes
    body: bytes
    is_too_long: bool
    is_last: bool
    """The connection is closed after it."""
    begin: float


# Takes status, body and media type. Called once, now or later.
Reply = Callable[[int, bytes, bytes], None]
App = Callable[[Request, Reply], None]


class HttpConnections:
    """The open connections. From `limit` on, a request is answered with 503 and its connection is closed."""

    def __init__(self, app: App, limit: int) -> None:
        self.app = app
        self.is_stopping = False
        self._limit = limit
        self._open: set[HttpConnection] = set()

    def new(self) -> HttpConnection:
        """For `loop.create_server`."""
        return HttpConnection(self)

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def are_too_many(self) -> bool:
        return len(self._open) >= self._limit

    def add(self, connection: HttpConnection) -> None:
        self._open.add(connection)

    def remove(self, connection: HttpConnection) -> None:
        self._open.discard(connection)

    def close_idle(self, seconds: float) -> None:
        """Close connections without progress for `seconds`."""
        for connection in list(self._open):
            connection.close_if_idle(seconds)

    def stop(self) -> None:
        """Close each connection once it has nothing left to answer."""
        self.is_stopping = True
        self.close_idle(0.0)

    def abort(self) -> None:
        """Close all connections at once."""
        for connection in list(self._open):
            connection.abort()


class HttpConnection(asyncio.Protocol):
    """One connection; it implements asyncio's Protocol and httptools' callbacks."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._answering: Request | None = None
        self._is_serving = False
        self._is_write_paused = False
        self._is_ended = False
        self._last_progress = self._loop.time()
        self._reset_request()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        self._connections.remove(self)

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        self._last_progress = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered in HTTP/1.1; what follows it is another protocol.
            self._is_ended = True
        except httptools.HttpParserError:
            self._end(400, b"this is no HTTP/1.1\n")
        if self._is_in_head and not self._is_ended:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._end(431, b"the head is too long\n")
        self._serve()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._last_progress = self._loop.time()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._serve()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._reset_request()
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._transport.write(_CONTINUE)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._begin = self._loop.time()

    def on_body(self, body: bytes) -> None:
        self._received += len(body)
        if self._received <= MAX_BODY_BYTES:
            self._body.append(body)
        else:
            self._body.clear()
        if self._received > _MAX_DROPPED_BYTES and not self._is_ended:
            self._take(is_last=True)
            self._is_ended = True

    def on_message_complete(self) -> None:
        if not self._is_ended:
            self._take(is_last=self._parser.should_upgrade() or not self._parser.should_keep_alive())

    def _reset_request(self) -> None:
        """Reset the fields of the request that is being read."""
        self._target = b""
        self._body: list[bytes] = []
        self._received = self._head_bytes = 0
        self._is_in_head = False
        self._begin = 0.0

    def _take(self, *, is_last: bool) -> None:
        method, body = self._parser.get_method(), b"".join(self._body)
        is_too_long = self._received > MAX_BODY_BYTES
        self._waiting.append(Request(method, self._target, body, is_too_long, is_last, self._begin))
        self._body.clear()

    # Requests are answered one after the other

    def _serve(self) -> None:
        """Pass queued requests to the application as far as possible."""
        if self._is_serving:
            return
        self._is_serving = True
        while (
            self._waiting and self._answering is None and not self._is_write_paused and not self._transport.is_closing()
        ):
            self._answering = self._waiting.popleft()
            if self._connections.are_too_many:
                self._reply(503, b"too many connections\n", TEXT, is_last=True)
            else:
                self._connections.app(self._answering, self._reply)
        self._is_serving = False
        self._update_reading()

    def _update_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._waiting or self._is_write_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _reply(self, status: int, body: bytes, media_type: bytes, *, is_last: bool = False) -> None:
        """Write the application's response, unless the connection is closing."""
        request, self._answering = self._answering, None
        if request is None or self._transport.is_closing():
            return
        self._last_progress = self._loop.time()
        is_last |= request.is_last or self._connections.is_stopping or (self._is_ended and not self._waiting)
        head = _head(status, len(body), media_type, is_last)
        self._transport.write(head if request.method == b"HEAD" else head + body)
        if is_last:
            self._transport.close()
        else:
            self._serve()

    def _end(self, status: int, words: bytes) -> None:
        """Stop reading after an invalid request. Valid requests before it are answered first."""
        self._is_ended = True
        if self._answering is None and not self._waiting:
            self._transport.write(_head(status, len(words), TEXT, True) + words)
            self._transport.close()

    def close_if_idle(self, seconds: float) -> None:
        if self._answering is None and self._loop.time() - self._last_progress >= seconds:
            self._transport.abort() if self._is_write_paused else self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _head(status: int, length: int, media_type: bytes, is_last: bool) -> bytes:
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
        status,
        _REASONS[status],
        media_type,
        length,
        b"connection: close\r\n" if is_last else b"",
    )
