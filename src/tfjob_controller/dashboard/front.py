"""The front of the dashboard's server: bounds for everybody who can connect, before and around uvicorn.

Theory of operation. uvicorn parses requests and runs the application; it bounds neither connections nor the bytes and
the time of a request. Connections are therefore accepted here, and count before their TLS handshake. Each stands
between its transport and uvicorn's protocol, and follows each request with a parser of its own:

    accepted ── handshake ──▶ silent ── first byte ──▶ request ── complete ──▶ answered by uvicorn ──▶ idle or closed
       HANDSHAKE_SECONDS         HEAD_SECONDS      REQUEST_SECONDS                ANSWER_SECONDS to read

The next request must not begin before the last one is answered (no browser pipelines), so that no read makes many
requests. Each request waits for its turn (`RequestTurns`). New connections of an address have a rate, and handshakes of
all addresses together have another one (`Handshakes`). Connections without a session share places and turns by the
client's address, those with one by the person (`shares`): strangers displace strangers, the address with the most
first, and nobody who has logged in.

Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, cast

import httptools
import structlog

from tfjob_controller.dashboard.requestturns import RequestTurns
from tfjob_controller.dashboard.shares import Shares, tenant_of
from tfjob_controller.httpserver.app import RequestRate
from tfjob_controller.httpserver.handshakes import Handshakes
from tfjob_controller.httpserver.tls import Decryption, accept
from tfjob_controller.httpserver.turns import AddressRates

log = structlog.get_logger(__name__)

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

STRANGERS_EACH, STRANGERS = 256, 512
# A browser opens six connections.
KNOWN_EACH, KNOWN = 32, 256
# New connections of one address. A handshake takes about a millisecond of the event loop.
NEW_CONNECTIONS = RequestRate(per_second=20.0, burst=100)
HANDSHAKES = RequestRate(per_second=100.0, burst=200)
# A token in a header of a proxy has up to 16 KB, and other programs of the same domain have cookies as well.
HEAD_BYTES, FIELDS = 32 * 1024, 100
# A proxy may send a body in chunks, whose heads and trailer it has for itself: 600 KB in pieces of 1 KB take 5 KB.
CHUNK_BYTES = 64 * 1024
HANDSHAKE_SECONDS, HEAD_SECONDS, REQUEST_SECONDS, ANSWER_SECONDS = 5.0, 10.0, 30.0, 30.0
_BUFFER_BYTES = 64 * 1024
# As asyncio waits when no descriptor is left.
_ACCEPT_RETRY_SECONDS = 1.0
# Connections that are accepted in a turn of the event loop: one that is opened takes as long as eight that are refused
# or wait.
_AT_ONCE, _OPENED = 64, 8
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def address_of(host: str) -> str:
    """The client's address; in IPv6 the network that one client has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


class Connections:
    """The open connections of the server.

    `new_protocol` makes uvicorn's protocol of one connection. `rate` is that of new ones of an address, or None.
    """

    def __init__(
        self,
        new_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        known_each: int = KNOWN_EACH,
        rate: RequestRate | None = None,
    ) -> None:
        self._new_protocol = new_protocol
        self._tls = tls
        self._rates = None if rate is None else AddressRates(rate)
        self._handshakes = Handshakes(HANDSHAKES, STRANGERS)
        self.decryption = Decryption()
        self._strangers: Shares[FrontConnection] = Shares(STRANGERS_EACH, STRANGERS)
        self._known: Shares[FrontConnection] = Shares(known_each, KNOWN)
        self.turns_of_strangers, self.turns_of_known = RequestTurns(), RequestTurns()
        # By address and port, as uvicorn tells them to the application.
        self._by_client: dict[tuple[str, int], FrontConnection] = {}

    def accept(self, client: socket.socket, peer: tuple[Any, ...]) -> bool:
        """Serves a socket that was just accepted, or closes it. Returns False if this took next to no time."""
        host, port = str(peer[0]), int(peer[1])
        address = address_of(host)
        now = asyncio.get_running_loop().time()
        if self._rates is not None and not self._rates.try_connection(address, now):
            client.close()
            return False
        if self._tls is None:
            self._open(client, (host, port))
            return True
        self._handshakes.wait(address, client, lambda: self._open(client, (host, port)))
        return False

    def close(self) -> None:
        """Closes the connections that wait for their handshake."""
        self._handshakes.close()

    def _open(self, client: socket.socket, peer: tuple[str, int]) -> None:
        connection = self._by_client[peer] = FrontConnection(self._new_protocol(), self, peer)
        for displaced in self._strangers.take(address_of(peer[0]), connection):
            displaced.abort()
        connection.open(client, self._tls)

    def of_client(self, peer: tuple[str, int]) -> FrontConnection | None:
        return self._by_client.get(peer)

    def know(self, connection: FrontConnection, person: str) -> None:
        """Gives a connection the newest of the person's places."""
        self.remove(connection)
        self._by_client[connection.peer] = connection
        for displaced in self._known.take(person, connection):
            displaced.abort()

    def remove(self, connection: FrontConnection) -> None:
        self._strangers.release(connection)
        self._known.release(connection)
        if self._by_client.get(connection.peer) is connection:
            del self._by_client[connection.peer]


class FrontConnection(asyncio.Protocol):
    """One connection; it implements asyncio's Protocol and httptools' callbacks."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections, peer: tuple[str, int]) -> None:
        self.peer = peer
        self._inner = inner
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._person = ""
        self._turns = connections.turns_of_strangers
        # The beginning of a request that waits for its turn.
        self._held = b""
        self._awaits_turn = False
        self._is_over = False
        self._is_in_head = False
        self._is_answering = False
        self._head_bytes = self._read_bytes = self._body_bytes = self._fields = 0

    def open(self, client: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._opening = self._loop.create_task(self._open(client, tls))

    async def _open(self, client: socket.socket, tls: ssl.SSLContext | None) -> None:
        address, decryption = address_of(self.peer[0]), self._connections.decryption
        try:
            await accept(self, client, tls, address, decryption, HANDSHAKE_SECONDS)
        except (OSError, asyncio.CancelledError):
            self._connections.remove(self)
            client.close()

    def belongs_to(self, person: str) -> None:
        """A request of this connection has a session of this person."""
        if person != self._person and not self._is_over:
            self._person = person
            self._connections.know(self, person)

    def take_turn(self) -> None:
        """Passes on the request that waited; called by `RequestTurns`."""
        data, self._held, self._awaits_turn = self._held, b"", False
        if self._transport is not None and not self._is_over:
            # First, since uvicorn may pause it.
            self._transport.resume_reading()
            self._inner.data_received(data)

    def answered(self) -> None:
        """The response to the last request is written."""
        self._is_answering = False
        self._turns.end(self)
        self._set_deadline(ANSWER_SECONDS)

    def abort(self) -> None:
        """Closes the connection at once."""
        self._is_over = True
        self._turns.end(self)
        self._connections.remove(self)
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_BUFFER_BYTES)
        self._set_deadline(HEAD_SECONDS)
        self._inner.connection_made(transport)
        if self._is_over:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._set_deadline(None)
        self._turns.end(self)
        self._connections.remove(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._body_bytes = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            self._refuse()
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # uvicorn's parser finds the same, and answers; what follows is not HTTP.
            self._is_over = True
        # Both parsers keep a field until its end, also one of a trailer, and skip extensions of chunks without a word.
        self._read_bytes += len(data) - self._body_bytes
        if self._read_bytes > (HEAD_BYTES if self._is_in_head else HEAD_BYTES + CHUNK_BYTES):
            self._refuse()
            return
        if self._awaits_turn and not self._is_over:
            self._hold(data)
        else:
            self._inner.data_received(data)

    def _hold(self, data: bytes) -> None:
        """Keeps the beginning of a request until its turn; nothing more is read."""
        is_first, self._held = not self._held, self._held + data
        if is_first and self._transport is not None:
            self._transport.pause_reading()
            connections = self._connections
            self._turns = connections.turns_of_known if self._person else connections.turns_of_strangers
            self._turns.wait(tenant_of(self._person) or address_of(self.peer[0]), self)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._set_deadline(ANSWER_SECONDS)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._set_deadline(None if self._is_answering else ANSWER_SECONDS)
        self._inner.resume_writing()

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._is_answering:
            raise _LimitError
        self._is_in_head = self._awaits_turn = True
        self._head_bytes = self._read_bytes = self._fields = 0
        self._set_deadline(REQUEST_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._is_answering = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._is_answering:
            self._set_deadline(None)

    def _count(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > HEAD_BYTES or self._fields > FIELDS:
            raise _LimitError

    def _refuse(self) -> None:
        """Ends the connection; uvicorn learns of it as of any that is lost."""
        if self._transport is not None and not self._is_answering:
            self._transport.write(_TOO_LARGE)
            self._is_over = True
            self._set_deadline(1.0)
            self._transport.close()
        else:
            self.abort()

    def _set_deadline(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self.abort)


class _LimitError(Exception):
    """Ends the parsing of a request; the parser wraps it into a HttpParserCallbackError."""


def noting_answers(app: AsgiApp, connections: Callable[[], Connections]) -> AsgiApp:
    """The application, whose requests have their connection in their state, and tell it when they are answered."""

    async def noted(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        connection = connections().of_client(tuple(scope.get("client") or ("", 0))) if scope["type"] == "http" else None
        if connection is None:
            await app(scope, receive, send)
            return
        scope.setdefault("state", {})["connection"] = connection

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.answered()
            await send(message)

        await app(scope, receive, send_noted)

    return noted


@contextlib.asynccontextmanager
async def accepting(listener: socket.socket, connections: Connections) -> AsyncIterator[None]:
    """Accepts connections meanwhile. Not by a reader of the event loop, which that of Windows does not have."""
    task = asyncio.get_running_loop().create_task(_accept(listener, connections))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        connections.close()


async def _accept(listener: socket.socket, connections: Connections) -> None:
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    work = 0
    while True:
        try:
            client, peer = await loop.sock_accept(listener)
        except OSError as error:
            log.warning("cannot accept a connection", error=str(error))
            await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
            continue
        work += _OPENED if connections.accept(client, peer) else 1
        # `sock_accept` does not wait while the kernel's queue has connections.
        if work >= _AT_ONCE:
            work = 0
            await asyncio.sleep(0)
