"""TLS with bounded work in a turn, over real sockets and uvloop, whose own TLS decrypts megabytes at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from helpers.certificates import server_context, trusting_context
from tfjob_controller.httpserver import tls
from tfjob_controller.httpserver.tls import Decryption, accept

HERE = "127.0.0.1"
TIMEOUT_SECONDS = 30.0


pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return server_context(*certificate)


class Client:
    """A TLS client whose records are made before they are sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting_context().wrap_bio(self.received, self.sent)

    async def handshake(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.send()
                self.received.write(await loop.sock_recv(self.sock, 65536))
        await self.send()

    async def send(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, self.sent.read())

    async def read(self) -> bytes:
        """Returns all until the server's close alert."""
        data, loop = b"", asyncio.get_running_loop()
        while True:
            try:
                part = self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.received.write(await loop.sock_recv(self.sock, 65536))
                continue
            if not part:
                return data
            data += part


class Received(asyncio.Protocol):
    """What the application has been given."""

    def __init__(self) -> None:
        self.data = b""
        self.has_ended = False
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> None:
        self.has_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()


Connected = Callable[[str], Awaitable[tuple[Client, Received]]]


@pytest.fixture
async def connected(context: ssl.SSLContext) -> AsyncIterator[Connected]:
    """Connects a client from an address."""
    decryption, loop = Decryption(), asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HERE, 0)))
        listener.setblocking(False)

        async def connect(address: str) -> tuple[Client, Received]:
            sock = stack.enter_context(socket.create_connection(listener.getsockname(), TIMEOUT_SECONDS, (address, 0)))
            sock.setblocking(False)
            accepted, _ = await loop.sock_accept(listener)
            received, client = Received(), Client(sock)
            accepting = accept(received, accepted, context, address, decryption, TIMEOUT_SECONDS)
            await asyncio.gather(accepting, client.handshake())
            return client, received

        yield connect


async def until(is_true: Callable[[], bool]) -> None:
    """Waits turn by turn, so that nothing is missed."""
    while not is_true():
        await asyncio.sleep(0)


async def test_a_flood_of_tiny_records_delays_nobody(connected: Connected, context: ssl.SSLContext) -> None:
    """The kernel has a megabyte of the flood before the other client sends its first byte."""
    records = 40_000

    floods = [await connected(address) for address in ("127.0.0.2", "127.0.0.2", "127.0.0.3")]
    other, received = await connected("127.0.0.4")
    for client, _ in floods:
        for _ in range(records):
            client.tls.write(b"x")
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        with contextlib.suppress(BlockingIOError):
            client.sock.send(client.sent.read())
    other.tls.write(b"hello")
    other.sock.send(other.sent.read())
    await until(lambda: received.data == b"hello")
    # Two or three turns of each; a read of uvloop's TLS has 11,000 records.
    assert sum(len(flood.data) for _, flood in floods) < 5_000


async def test_large_data_arrives_whole_in_both_directions_before_the_close_alert(connected: Connected) -> None:
    large = bytes(range(256)) * 4096

    client, received = await connected("127.0.0.2")
    client.tls.write(large)
    await client.send()
    await until(lambda: len(received.data) == len(large))
    assert received.data == large
    received.transport.write(large)
    received.transport.close()
    assert await client.read() == large
    client.sock.close()
    await received.is_lost.wait()


async def test_what_comes_while_the_application_pauses_is_kept_and_the_rest_not_read(connected: Connected) -> None:
    client, received = await connected("127.0.0.2")
    received.transport.pause_reading()
    client.tls.write(b"x" * 8_000_000)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sending = asyncio.create_task(client.send())
    for _ in range(200):
        await asyncio.sleep(0)
    assert (received.data, sending.done()) == (b"", False)
    received.transport.resume_reading()
    await sending
    await until(lambda: len(received.data) == 8_000_000)


async def test_a_client_that_ends_its_side_is_read_to_the_end_and_closed_at_once(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_LINGER_SECONDS", 10 * TIMEOUT_SECONDS)

    client, received = await connected("127.0.0.2")
    client.tls.write(b"last")
    await client.send()
    client.sock.shutdown(socket.SHUT_WR)
    await until(lambda: received.has_ended)
    assert received.data == b"last"
    assert await client.read() == b""
    await received.is_lost.wait()


async def test_a_client_that_sends_on_after_the_close_alert_still_gets_the_response(connected: Connected) -> None:
    """A socket that is closed while it has unread bytes sends a reset, which takes the response back."""
    client, received = await connected("127.0.0.2")
    client.tls.write(b"x" * 2_000_000)
    sending = asyncio.create_task(client.send())
    await until(lambda: bool(received.data))
    received.transport.write(b"too large")
    received.transport.close()
    await sending
    assert await client.read() == b"too large"


async def test_a_client_that_does_not_speak_tls_is_told_so_and_closed(context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server((HERE, 0)) as listener, socket.create_connection(listener.getsockname()) as plain:
        plain.setblocking(False)
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        plain.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError, match="HTTP_REQUEST"):
            await accept(Received(), accepted, context, "127.0.0.2", Decryption(), TIMEOUT_SECONDS)
        assert (await loop.sock_recv(plain, 100))[:1] in (b"\x15", b"")


async def test_a_silent_client_is_given_up(context: ssl.SSLContext) -> None:
    with socket.create_server((HERE, 0)) as listener, socket.create_connection(listener.getsockname()) as silent:
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        with pytest.raises(TimeoutError):
            await accept(Received(), accepted, context, "127.0.0.2", Decryption(), 0.01)
        silent.settimeout(TIMEOUT_SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(silent.recv, 1) == b""
