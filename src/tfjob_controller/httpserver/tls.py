"""TLS on one connection, with bounded work in a turn of the event loop.

Theory of operation. A client decides how much work its bytes are: 64 KB may be one request, or thousands of records of
one byte each, or updates of keys that no application ever sees. The transports of asyncio and uvloop decrypt all that
has arrived before they return, megabytes in uvloop's. Here a connection reads `_READ_BYTES`, stops reading, and waits
until `Decryption` calls it: for some milliseconds in a turn of the event loop, first of all a connection of the address
that has waited the longest. It reads on after that, unless its application has paused it, or its client does not read
what is sent to it, such as replies to updates of keys.

    socket ──▶ _Wire ── waits in Decryption ──▶ ssl.SSLObject ──▶ the application's protocol
    socket ◀───────── TlsTransport.write ◀──── ssl.SSLObject ◀──── the application's protocol

At the end the close alert is sent, and what the client still sends is dropped for `_LINGER_SECONDS`: a socket that is
closed while it has unread bytes takes the response back.

Threads: everything runs in the event loop's. Source: asyncio's sslproto; ssl.SSLObject, ssl.MemoryBIO; RFC 8446, 4.6.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, cast

from tfjob_controller.httpserver.turns import TurnQueue

# About 180 records of one byte, or 150 updates of keys, which take some milliseconds.
_READ_BYTES = 4096
_RECORD_BYTES = 16 * 1024
_TURN_SECONDS = 0.005
_LINGER_SECONDS = 2.0


class Decryption:
    """The connections of one server that have bytes to decrypt."""

    def __init__(self) -> None:
        self._waiting = TurnQueue()
        self._is_scheduled = False
        self.read_buffer = memoryview(bytearray(_READ_BYTES))

    def wait(self, address: str, wire: _Wire) -> None:
        """Calls `take_turn` of the connection in a later turn of the event loop."""
        self._waiting.add(address, wire)
        self._schedule()

    def leave(self, address: str, wire: _Wire) -> None:
        """Forgets a connection that may be waiting."""
        self._waiting.remove(address, wire)

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        ends_at = time.monotonic() + _TURN_SECONDS
        try:
            while self._waiting and time.monotonic() < ends_at:
                self._waiting.pop(next(iter(self._waiting))).take_turn()
        finally:
            self._schedule()


async def accept(
    protocol: asyncio.BaseProtocol,
    client: socket.socket,
    context: ssl.SSLContext | None,
    address: str,
    decryption: Decryption,
    handshake_seconds: float,
) -> None:
    """Serves an accepted socket, with TLS if there is a context; returns when `protocol` has its transport.

    Raises OSError, of which TimeoutError and ssl.SSLError are kinds, if there is no handshake; the socket is closed
    then, as it is if this is cancelled.
    """
    loop = asyncio.get_running_loop()
    if context is None:
        await loop.connect_accepted_socket(lambda: protocol, client)
        return
    wire = _Wire(protocol, context, address, decryption)
    await loop.connect_accepted_socket(lambda: wire, client)
    try:
        async with asyncio.timeout(handshake_seconds):
            await wire.handshake
    except ssl.SSLError:
        # After the alert that names the cause.
        wire.raw.close()
        raise
    except BaseException:
        wire.raw.abort()
        raise


class _Wire(asyncio.BufferedProtocol):
    """The protocol of the socket: decrypts what it reads, and passes it on."""

    def __init__(
        self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, address: str, decryption: Decryption
    ) -> None:
        self.protocol = protocol
        self.context = context
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.raw: asyncio.Transport
        self._address = address
        self._decryption = decryption
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport = TlsTransport(self)
        self._is_open = False
        self._is_paused = False
        self._is_write_paused = False
        # The client sends no more: it has sent its close alert, or has closed its side of the socket.
        self._is_ended = False
        self._is_socket_ended = False
        self._linger: asyncio.TimerHandle | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decryption.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closing:
            return
        self._incoming.write(self._decryption.read_buffer[:nbytes])
        self.raw.pause_reading()
        self._decryption.wait(self._address, self)

    def eof_received(self) -> bool:
        if self.is_closing:
            return False
        self._is_ended = self._is_socket_ended = True
        self._decryption.wait(self._address, self)
        return True

    def pause_writing(self) -> None:
        self._is_write_paused = True
        if self._is_open:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._is_open:
            self.protocol.resume_writing()
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._decryption.leave(self._address, self)
        if self._linger is not None:
            self._linger.cancel()
        if self._is_open:
            self.protocol.connection_lost(exc)
        elif not self.handshake.done():
            self.handshake.set_exception(exc or ConnectionResetError("closed during the handshake"))

    # Called by `Decryption`

    def take_turn(self) -> None:
        """Decrypts what has been read, and passes it on."""
        if self.is_closing:
            return
        try:
            if not self._is_open:
                self.ssl_object.do_handshake()
                self._open()
            self._pass_on()
        except ssl.SSLWantReadError:
            # The handshake is not complete.
            if self._is_ended:
                self.raw.close()
        except ssl.SSLError as error:
            self.flush()
            self._fail(error)
        except BaseException:
            self.raw.abort()
            raise
        self.flush()
        self._read_on()

    def _open(self) -> None:
        self._is_open = True
        if not self.handshake.done():
            self.handshake.set_result(None)
        self.protocol.connection_made(self._transport)
        if self._is_write_paused:
            self.protocol.pause_writing()

    def _pass_on(self) -> None:
        """Passes on all that is decrypted, unless the application pauses."""
        if self._is_paused or self.is_closing:
            return
        data = b"".join(self._decrypted())
        if data:
            self._deliver(data)
        if self._is_ended and not self._is_paused and not self.is_closing:
            cast("asyncio.Protocol", self.protocol).eof_received()
            self.close()

    def _decrypted(self) -> Iterator[bytes]:
        while True:
            try:
                data = self.ssl_object.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self._is_ended = True
                return
            yield data

    def _deliver(self, data: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", self.protocol).data_received(data)
            return
        rest = memoryview(data)
        while rest and not self.is_closing:
            room = memoryview(self.protocol.get_buffer(len(rest)))
            part = min(len(room), len(rest))
            room[:part] = rest[:part]
            self.protocol.buffer_updated(part)
            rest = rest[part:]

    def _read_on(self) -> None:
        if not (self._is_paused or self._is_write_paused or self.is_closing or self._is_ended):
            self.raw.resume_reading()

    # Called by the transport

    @property
    def is_closing(self) -> bool:
        return self._linger is not None or self.raw.is_closing()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        # What has been read is passed on first.
        self._decryption.wait(self._address, self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest and not self.is_closing:
            rest = rest[self.ssl_object.write(rest) :]
        self.flush()

    def flush(self) -> None:
        """Sends what is encrypted."""
        if self._outgoing.pending and not self.raw.is_closing():
            self.raw.write(self._outgoing.read())

    def close(self) -> None:
        """Sends the close alert after all that is written, and closes the socket once the client sends no more."""
        if self.is_closing:
            return
        # The client's alert has not come, and nobody waits for it.
        with contextlib.suppress(ssl.SSLError):
            self.ssl_object.unwrap()
        self.flush()
        if self._is_socket_ended:
            self.raw.close()
            return
        loop = asyncio.get_running_loop()
        self._linger = loop.call_later(_LINGER_SECONDS, self.raw.abort)
        self.raw.write_eof()
        self.raw.resume_reading()

    def _fail(self, error: ssl.SSLError) -> None:
        if not self.handshake.done():
            self.handshake.set_exception(error)
        self.raw.close()


class TlsTransport(asyncio.Transport):
    """What the application's protocol writes to; the methods of asyncio's Transport that are of use here."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__()
        self._wire = wire

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        wire = self._wire
        if name == "sslcontext":
            return wire.context
        if name == "peercert":
            return wire.ssl_object.getpeercert()
        return wire.raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._wire.is_closing

    def pause_reading(self) -> None:
        self._wire.pause()

    def resume_reading(self) -> None:
        self._wire.resume()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._wire.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._wire.raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._wire.raw.get_write_buffer_size()

    def close(self) -> None:
        self._wire.close()

    def abort(self) -> None:
        self._wire.raw.abort()
