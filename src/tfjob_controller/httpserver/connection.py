"""HTTP/1.1 on one connection, and the open connections of a server.

Theory of operation. A `RequestReader` reads complete requests from the bytes of the event loop; they are passed to the
application, which replies at once or later. A connection is in one of these states:

    HANDSHAKE ──▶ IDLE ── first byte ──▶ READING ── request complete ──▶ BUSY ── reply ──▶ IDLE, READING or closed
    (TLS only)                                            │                ▲
                     several requests, or too many ───────┴──▶ WAITING ────┘ a turn of `Turns`

Few requests are read at once, one is answered in a turn of the event loop, and nothing is read while others wait.
Each state but BUSY and WAITING has a deadline that starts when the state does, so a client that sends or reads a byte
now and then gains no time; WAITING keeps that of the state before. Connections count from the moment at which they are
accepted, or with TLS at which their handshake may begin (`handshakes`). At the limit, a new one replaces the oldest one
of the address that has the most, so that a client with many connections displaces only itself.

It is code of its own because kube-scheduler waits for it: an ASGI server with a task for each call took three times as
long.

Threads: everything, including replies, runs in the event loop's. Source: RFC 9112; asyncio's BufferedProtocol.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, cast

import structlog

from tfjob_controller.httpserver.app import TEXT, App, Limits, PeerCheck, Request
from tfjob_controller.httpserver.handshakes import Handshakes
from tfjob_controller.httpserver.requestreader import RequestReader
from tfjob_controller.httpserver.tls import Decryption, accept
from tfjob_controller.httpserver.turns import Turns

log = structlog.get_logger(__name__)

_COPIED_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024

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
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnections:
    """The open connections of one server."""

    def __init__(self, app: App, limits: Limits, check_peer: PeerCheck | None = None) -> None:
        self.app = app
        self.limits = limits
        self.check_peer = check_peer
        self.turns = Turns(limits.rate)
        self._handshakes = Handshakes(limits.handshakes, limits.connections)
        self.decryption = Decryption()
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        """What one connection has just read; each parses it before another one reads."""
        self.is_stopping = False
        # By the address of the client; the oldest first.
        self._open: dict[str, dict[HttpConnection, None]] = {}
        self._count = 0

    def open(self, client: socket.socket, address: str, tls: ssl.SSLContext | None) -> bool:
        """Serves a socket that was just accepted, or closes it. Returns False if this took next to no time.

        With TLS it waits for the turn of its handshake, and is counted before it; asyncio's `create_server` would count
        it afterwards.
        """
        if not self.turns.try_connection(address):
            client.close()
            return False
        if tls is None:
            return self._begin(client, address, None)
        self._handshakes.wait(address, client, lambda: self._begin(client, address, tls))
        return False

    def _begin(self, client: socket.socket, address: str, tls: ssl.SSLContext | None) -> bool:
        connection = HttpConnection(self, address)
        is_added = self._add(connection, address)
        if is_added:
            connection.open(client, tls)
        else:
            client.close()
        return is_added

    @property
    def count(self) -> int:
        return self._count

    def _add(self, connection: HttpConnection, address: str) -> bool:
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
        self._handshakes.close()
        for connection in self.all():
            connection.close_if_idle()

    def abort(self) -> None:
        """Closes all connections at once."""
        self._handshakes.close()
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


class HttpConnection(asyncio.BufferedProtocol):
    """One connection; it implements asyncio's BufferedProtocol."""

    def __init__(self, connections: HttpConnections, address: str) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self._limits, self._loop.time, address)
        self._answering: Request | None = None
        self._refusal = ""
        self._address = address
        self._opening: asyncio.Task[Any] | None = None
        self._is_first = True
        self._awaits_turn = False
        self._is_read_paused = False
        self._is_write_paused = False
        self._room = 0
        self.deadline = float("inf")

    def open(self, client: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Begins to serve a socket, with a handshake in TLS mode."""
        client.setblocking(False)
        seconds, decryption = self._limits.handshake_seconds, self._connections.decryption
        self._opening = self._loop.create_task(accept(self, client, tls, self._address, decryption, seconds))
        # Not a part of the task, which may be cancelled before its first step.
        self._opening.add_done_callback(lambda task: self._end_opening(task, client))

    def _end_opening(self, task: asyncio.Task[Any], client: socket.socket) -> None:
        if task.cancelled() or task.exception() is not None:
            log.debug("connection not opened", client=self._address, error=str(task))
            self._connections.remove(self, self._address)
            client.close()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is not None and self._connections.check_peer is not None:
            self._refusal = self._connections.check_peer(transport.get_extra_info("peercert") or {})
        self._opening = None
        self.deadline = self._loop.time() + self._limits.idle_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.complete.clear()
        self._connections.turns.leave(self._address, self)
        self._connections.remove(self, self._address)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._room = min(self._reader.wanted_bytes, _READ_BYTES)
        return self._connections.read_buffer[: self._room]

    def buffer_updated(self, nbytes: int) -> None:
        begun = self._reader.begun
        refusal = self._reader.feed(self._connections.read_buffer[:nbytes])
        if self._reader.expects_continue():
            self._transport.write(_CONTINUE)
        if self._reader.begun != begun and self._reader.is_in_request and self._answering is None:
            self._set_deadline()
        if refusal is not None:
            self._refuse(*refusal)
        # More may follow at once what filled the buffer.
        if nbytes < self._room and self._can_answer() and self._try_request():
            self._answer()
        else:
            self._continue()

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._set_deadline()
        self._continue()

    # Requests are answered one after the other

    @property
    def is_busy(self) -> bool:
        """Whether the application has a request of this connection."""
        return self._answering is not None

    def take_turn(self) -> None:
        """Answers a request that waited; called by `Turns`."""
        self._awaits_turn = False
        if self._can_answer():
            self._answer()
        else:
            self._continue()

    def _try_request(self) -> bool:
        """Whether a request may be answered without a turn. The connection has paid for its first one."""
        is_first, self._is_first = self._is_first, False
        return is_first or self._connections.turns.try_request(self._address)

    def _can_answer(self) -> bool:
        return (
            bool(self._reader.complete)
            and self._answering is None
            and not self._awaits_turn
            and not self._is_write_paused
            and not self._transport.is_closing()
        )

    def _answer(self) -> None:
        """Passes the next request to the application."""
        self._answering = self._reader.complete.popleft()
        self.deadline = float("inf")
        if self._refusal:
            self._reply(403, self._refusal.encode() + b"\n", TEXT)
            return
        try:
            self._connections.app(self._answering, self._reply)
        except Exception:
            log.exception("request not answered", client=self._address)
            self.abort()
        if self._answering is not None:
            self._continue()

    def _continue(self) -> None:
        """Has the next request wait for its turn; nothing is read until all are answered."""
        if self._can_answer():
            self._awaits_turn = True
            self._connections.turns.wait(self._address, self)
        is_paused = bool(self._reader.complete) or self._is_write_paused
        if is_paused is not self._is_read_paused and not self._transport.is_closing():
            self._is_read_paused = is_paused
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def _reply(self, status: int, body: bytes, media_type: bytes) -> None:
        """Writes the application's response, unless the connection is closing."""
        request, self._answering = self._answering, None
        if request is None or self._transport.is_closing():
            return
        is_last = (
            request.is_last or self._connections.is_stopping or (self._reader.is_ended and not self._reader.complete)
        )
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
            self._continue()

    def _set_deadline(self) -> None:
        now, limits = self._loop.time(), self._limits
        if self._transport.get_write_buffer_size():
            self.deadline = now + limits.response_seconds
        elif self._reader.is_in_request:
            self.deadline = now + limits.request_seconds
        else:
            self.deadline = now + limits.idle_seconds

    def _refuse(self, status: int, text: bytes) -> None:
        """Ends the connection after an invalid request. Valid requests before it are answered first."""
        if self._answering is None and not self._reader.complete:
            self._transport.write(_head(status, len(text), TEXT, True) + text)
            self._set_deadline()
            self._transport.close()

    def close_if_idle(self) -> None:
        """Closes the connection unless a request of it is being answered."""
        if self._opening is not None:
            self._opening.cancel()
        elif self._answering is None:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once; `connection_lost` follows."""
        if self._opening is not None:
            self._opening.cancel()
        else:
            self._transport.abort()


def _head(status: int, length: int, media_type: bytes, is_last: bool) -> bytes:
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
        status,
        _REASONS[status],
        media_type,
        length,
        b"connection: close\r\n" if is_last else b"",
    )
