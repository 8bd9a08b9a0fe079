"""HTTP/1.1 on one connection, and the open connections of a server.

Theory of operation. httptools (C) parses the bytes from the event loop into complete `Request`s, which are passed to
the application; it replies at once or later. A connection is in one of these states:

    HANDSHAKE ──▶ IDLE ── first byte ──▶ READING ── request complete ──▶ BUSY ── reply ──▶ IDLE, READING or closed
    (TLS only)                                                            │
                               further requests are queued ───────────────┘ nothing is read until they are answered

Each state but BUSY has a deadline that starts when the state does, so a client that sends or reads a byte now and then
gains no time. The parts of a request are counted while they are parsed: bytes and fields of its head, its chunks, its
trailer and its body. A body that is too long is read to its end and dropped, so that its sender reads the response; an
excessive one is cut off. Connections count from the moment at which they are accepted. At the limit, a new one replaces
the oldest one of the address that has the most, so that a client with many connections displaces only itself.

It is code of its own because kube-scheduler waits for it: an ASGI server with a task for each call took three times as
long.

Threads: everything, including replies, runs in the event loop's. Source: RFC 9112; asyncio's Protocol.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import structlog

log = structlog.get_logger(__name__)

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"

# A proxy may send a body in chunks. Each costs some calls, whatever its length.
_MAX_CHUNKS = 4096
_CHUNK_HEAD_BYTES = 16
_DROPPED_BODIES = 16
_COPIED_BYTES = 64 * 1024

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Content Too Large",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}
_TOO_LARGE = b"the request has too many or too long header fields, or too many chunks\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Takes the certificate of a client, as `ssl.SSLSocket.getpeercert` returns it, and returns why its requests are
# refused; an empty text if they are not.
PeerCheck = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server grants its clients."""

    connections: int
    body_bytes: int
    replaces_busy: bool
    """Whether a new connection may replace one whose request is being answered."""
    head_bytes: int = 16 * 1024
    """Request line and header fields; a trailer counts as well."""
    fields: int = 30
    handshake_seconds: float = 5.0
    request_seconds: float = 10.0
    """From the first byte of a request to its last."""
    response_seconds: float = 30.0
    """For the client to read a response."""
    # Longer than Go's client keeps an idle connection (90 s), so that the client never uses one that was just closed.
    idle_seconds: float = 120.0
    """From a response, or from the accepted connection, to the next request."""


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
    accept: bytes = b""
    """The Accept header."""
    authorization: bytes = field(default=b"", repr=False)
    """The Authorization header, which is a secret."""
    client: str = ""
    """The address of the client, without its port."""


# Takes status, body and media type. Called once, now or later.
Reply = Callable[[int, bytes, bytes], None]
App = Callable[[Request, Reply], None]


@dataclass(slots=True)
class _Reading:
    """What was read of a request."""

    begin: float = 0.0
    is_in_head: bool = True
    read: int = 0
    """Bytes of it in buffers that it has for itself."""
    target: bytes = b""
    accept: bytes = b""
    authorization: bytes = field(default=b"", repr=False)
    head_bytes: int = 0
    """Bytes of its target and fields."""
    fields: int = 0
    chunks: int = 0
    body: bytearray = field(default_factory=bytearray)
    received: int = 0
    """Bytes of its body, also of those that are dropped."""


class HttpConnections:
    """The open connections of one server."""

    def __init__(self, app: App, limits: Limits, check_peer: PeerCheck | None = None) -> None:
        self.app = app
        self.limits = limits
        self.check_peer = check_peer
        self.is_stopping = False
        # By the address of the client; the oldest first.
        self._open: dict[str, dict[HttpConnection, None]] = {}
        self._count = 0

    def new(self) -> HttpConnection:
        """For `loop.create_server`."""
        return HttpConnection(self)

    @property
    def count(self) -> int:
        return self._count

    def add(self, connection: HttpConnection, address: str) -> bool:
        """Adds a connection and, at the limit, aborts another one; False if none can be replaced."""
        if self._count >= self.limits.connections and not self._replace_one(address):
            return False
        self._open.setdefault(address, {})[connection] = None
        self._count += 1
        return True

    def remove(self, connection: HttpConnection, address: str) -> None:
        of_address = self._open.get(address, {})
        if connection in of_address:
            del of_address[connection]
            self._count -= 1
            if not of_address:
                del self._open[address]

    def close_overdue(self, now: float) -> None:
        """Closes connections whose deadline has passed."""
        for connection in self.all():
            if connection.deadline <= now:
                connection.abort()

    def stop(self) -> None:
        """Closes each connection once it has nothing left to answer."""
        self.is_stopping = True
        for connection in self.all():
            connection.close_if_idle()

    def abort(self) -> None:
        """Closes all connections at once."""
        for connection in self.all():
            connection.abort()

    def all(self) -> list[HttpConnection]:
        return [connection for of_address in self._open.values() for connection in of_address]

    def _replace_one(self, address: str) -> bool:
        """Aborts the oldest replaceable connection of the address with the most connections."""
        for replaced, of_address in sorted(self._open.items(), key=lambda item: len(item[1]), reverse=True):
            for connection in of_address:
                if self.limits.replaces_busy or not connection.is_busy:
                    self.remove(connection, replaced)
                    connection.abort()
                    return True
        log.warning("connection refused: all others are in use", client=address, connections=self._count)
        return False


class HttpConnection(asyncio.Protocol):
    """One connection; it implements asyncio's Protocol and httptools' callbacks."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._answering: Request | None = None
        self._refusal = ""
        self._address = ""
        self._handshake: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_write_paused = False
        self._is_ended = False
        self._is_in_request = False
        self._begun = 0
        self.deadline = float("inf")
        self._request = _Reading()

    def start_handshake(self, client: socket.socket, address: str, tls: ssl.SSLContext) -> None:
        """Begins TLS on a connection that was just accepted, unless there are too many."""
        if not self._connections.add(self, address):
            client.close()
            return
        self._address = address
        self._handshake = self._loop.create_task(self._shake_hands(client, tls))

    async def _shake_hands(self, client: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, client, ssl=tls, ssl_handshake_timeout=self._limits.handshake_seconds
            )
        except (OSError, asyncio.CancelledError) as error:
            log.debug("TLS handshake failed", client=self._address, error=str(error))
            self._connections.remove(self, self._address)
            client.close()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._handshake is None:
            self._address = (transport.get_extra_info("peername") or ("",))[0]
            if not self._connections.add(self, self._address):
                self.abort()
                return
        elif self._connections.check_peer is not None:
            self._refusal = self._connections.check_peer(transport.get_extra_info("peercert") or {})
        self._handshake = None
        self.deadline = self._loop.time() + self._limits.idle_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        self._connections.remove(self, self._address)

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        # All of the data belongs to one request, unless another one began in it.
        begun = self._begun + (not self._is_in_request)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered in HTTP/1.1; what follows it is another protocol.
            self._is_ended = True
        except httptools.HttpParserCallbackError:
            self._end(431, _TOO_LARGE)
        except httptools.HttpParserError:
            self._end(400, b"this is not HTTP/1.1\n")
        # The parser keeps a field until its end, and skips extensions of chunks without a word.
        if self._is_in_request and self._begun == begun and not self._is_ended:
            self._request.read += len(data)
            chunk_heads = 0 if self._request.is_in_head else _MAX_CHUNKS * _CHUNK_HEAD_BYTES
            if self._request.read - self._request.received > self._limits.head_bytes + chunk_heads:
                self._end(431, _TOO_LARGE)
        self._serve()

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._set_deadline()
        self._serve()

    # Called by the parser

    def on_message_begin(self) -> None:
        self._request = _Reading(begin=self._loop.time())
        self._begun += 1
        self._is_in_request = True
        if self._answering is None:
            self._set_deadline()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a field of the head or of the trailer."""
        self._request.fields += 1
        self._count_head(len(name) + len(value))
        name = name.lower()
        if name == b"accept":
            self._request.accept = value
        elif name == b"authorization":
            self._request.authorization = value
        elif name == b"expect" and value.lower() == b"100-continue":
            self._transport.write(_CONTINUE)

    def on_headers_complete(self) -> None:
        self._request.is_in_head = False

    def on_chunk_header(self) -> None:
        self._request.chunks += 1
        if self._request.chunks > _MAX_CHUNKS:
            raise _LimitError

    def on_body(self, body: bytes) -> None:
        self._request.received += len(body)
        if self._request.received <= self._limits.body_bytes:
            self._request.body += body
        else:
            self._request.body = bytearray()
        if self._request.received > _DROPPED_BODIES * self._limits.body_bytes and not self._is_ended:
            self._take(is_last=True)
            self._is_ended = True

    def on_message_complete(self) -> None:
        if not self._is_ended:
            self._take(is_last=self._parser.should_upgrade() or not self._parser.should_keep_alive())

    def _count_head(self, length: int) -> None:
        self._request.head_bytes += length
        if self._request.head_bytes > self._limits.head_bytes or self._request.fields > self._limits.fields:
            raise _LimitError

    def _take(self, *, is_last: bool) -> None:
        self._is_in_request = False
        request, self._request = self._request, _Reading()
        self._waiting.append(
            Request(
                self._parser.get_method(),
                request.target,
                bytes(request.body),
                request.received > self._limits.body_bytes,
                is_last,
                request.begin,
                request.accept,
                request.authorization,
                self._address,
            )
        )

    # Requests are answered one after the other

    @property
    def is_busy(self) -> bool:
        """Whether the application has a request of this connection."""
        return self._answering is not None

    def _serve(self) -> None:
        """Passes queued requests to the application as far as possible."""
        if self._is_serving:
            return
        self._is_serving = True
        while (
            self._waiting and self._answering is None and not self._is_write_paused and not self._transport.is_closing()
        ):
            self._answering = self._waiting.popleft()
            self.deadline = float("inf")
            if self._refusal:
                self._reply(403, self._refusal.encode() + b"\n", TEXT)
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

    def _reply(self, status: int, body: bytes, media_type: bytes) -> None:
        """Writes the application's response, unless the connection is closing."""
        request, self._answering = self._answering, None
        if request is None or self._transport.is_closing():
            return
        is_last = request.is_last or self._connections.is_stopping or (self._is_ended and not self._waiting)
        head = _head(status, len(body), media_type, is_last)
        # One packet if it is short; a long body is shared with other connections, not copied.
        if request.method == b"HEAD":
            self._transport.write(head)
        elif len(body) <= _COPIED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        self._set_deadline()
        if is_last:
            self._transport.close()
        else:
            self._serve()

    def _set_deadline(self) -> None:
        now, limits = self._loop.time(), self._limits
        if self._transport.get_write_buffer_size():
            self.deadline = now + limits.response_seconds
        elif self._is_in_request:
            self.deadline = now + limits.request_seconds
        else:
            self.deadline = now + limits.idle_seconds

    def _end(self, status: int, words: bytes) -> None:
        """Stops reading after an invalid request. Valid requests before it are answered first."""
        self._is_ended = True
        if self._answering is None and not self._waiting:
            self._transport.write(_head(status, len(words), TEXT, True) + words)
            self._set_deadline()
            self._transport.close()

    def close_if_idle(self) -> None:
        """Closes the connection unless a request of it is being answered."""
        if self._handshake is not None:
            self._handshake.cancel()
        elif self._answering is None:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once; `connection_lost` follows."""
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            self._transport.abort()


class _LimitError(Exception):
    """Ends the parsing of a request; the parser wraps it into a HttpParserCallbackError."""


def _head(status: int, length: int, media_type: bytes, is_last: bool) -> bytes:
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
        status,
        _REASONS[status],
        media_type,
        length,
        b"connection: close\r\n" if is_last else b"",
    )
