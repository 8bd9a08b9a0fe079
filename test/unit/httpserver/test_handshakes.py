"""TLS handshakes of many addresses at once, over real sockets: who has none waiting goes first."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers import certificates
from helpers.certificates import client_hello
from tfjob_controller.dashboard import front
from tfjob_controller.httpserver.app import Limits, Reply, Request, RequestRate
from tfjob_controller.httpserver.connection import HttpConnections
from tfjob_controller.httpserver.handshakes import Handshakes
from tfjob_controller.httpserver.server import accepting

HERE = "127.0.0.1"
# None follows in the time of a test.
RATE = RequestRate(per_second=0.001, burst=20)
TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="module")
def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return certificates.server_context(*certificate)


def connect(port: int, address: str, stack: contextlib.ExitStack) -> socket.socket:
    client = stack.enter_context(socket.create_connection((HERE, port), TIMEOUT_SECONDS, (address, 0)))
    client.sendall(client_hello())
    client.setblocking(False)
    return client


def is_answered(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


Opened = contextlib.AbstractAsyncContextManager[object]
Server = Callable[[socket.socket, ssl.SSLContext], Opened]


@contextlib.asynccontextmanager
async def project_server(listener: socket.socket, tls: ssl.SSLContext):  # type: ignore[no-untyped-def]
    def app(request: Request, reply: Reply) -> None:
        raise AssertionError(request)

    limits = Limits(connections=512, body_bytes=1000, replaces_busy=True, rate=None, handshakes=RATE)
    connections = HttpConnections(app, limits)
    with accepting(listener, connections, lambda: tls):
        yield
    connections.abort()


@contextlib.asynccontextmanager
async def dashboard(listener: socket.socket, tls: ssl.SSLContext):  # type: ignore[no-untyped-def]
    """As behind a proxy, where addresses have no rate of their own."""
    connections = front.Connections(asyncio.Protocol, tls)
    async with front.accepting(listener, connections):
        yield


@pytest.mark.parametrize("server", [project_server, dashboard])
@pytest.mark.parametrize("each", [1, 20])
@pytest.mark.anyio
async def test_handshakes_of_many_addresses_are_few_and_a_new_address_comes_first(
    server: Server, each: int, server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "HANDSHAKES", RATE)

    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack, socket.create_server((HERE, 0), backlog=4096) as listener:
        port = listener.getsockname()[1]
        # All are in the kernel's queue before the server accepts one. The flood's addresses have had a handshake.
        async with server(listener, server_context):
            first = [connect(port, f"127.0.1.{number}", stack) for number in range(1, 11)]
            while not all(is_answered(client) for client in first):
                await asyncio.sleep(0.01)
            flood = [connect(port, f"127.0.1.{number % 10 + 1}", stack) for number in range(10 * each)]
            other = connect(port, HERE, stack)
            await asyncio.wait_for(loop.sock_recv(other, 1), TIMEOUT_SECONDS)
            for _ in range(50):
                await asyncio.sleep(0)
            assert sum(is_answered(client) for client in flood) <= RATE.burst - len(first) - 1


@dataclass(eq=False)
class Recorder:
    """Connections to `Handshakes`, which are never answered."""

    handshakes: Handshakes
    begun: list[str] = field(default_factory=list)
    ends: dict[str, socket.socket] = field(default_factory=dict)

    def wait(self, address: str, name: str, stack: contextlib.ExitStack) -> None:
        ours, self.ends[name] = (stack.enter_context(each) for each in socket.socketpair())
        self.ends[name].setblocking(False)
        self.handshakes.wait(address, ours, lambda: self.begun.append(name))

    def closed(self) -> list[str]:
        return [name for name, end in self.ends.items() if self._is_closed(end)]

    @staticmethod
    def _is_closed(end: socket.socket) -> bool:
        try:
            return end.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.mark.anyio
async def test_one_begins_in_a_turn_of_the_address_whose_last_one_began_the_longest_ago() -> None:
    recorder = Recorder(Handshakes(None, 100))
    with contextlib.ExitStack() as stack:
        for name in ("a1", "a2", "a3", "b1", "b2"):
            recorder.wait(name[0], name, stack)
        for expected in (["a1"], ["a1", "b1"], ["a1", "b1", "a2"]):
            await asyncio.sleep(0)
            assert recorder.begun == expected
        recorder.wait("c", "c1", stack)
        while len(recorder.begun) < 6:
            await asyncio.sleep(0)
        assert recorder.begun[3:] == ["c1", "b2", "a3"]
        assert recorder.closed() == []


@pytest.mark.anyio
async def test_beyond_the_bound_the_address_with_the_most_loses_its_oldest() -> None:
    recorder = Recorder(Handshakes(None, 3))
    with contextlib.ExitStack() as stack:
        for name in ("a1", "b1", "b2", "c1"):
            recorder.wait(name[0], name, stack)
        assert recorder.closed() == ["b1"]
        recorder.wait("b", "b3", stack)
        assert recorder.closed() == ["b1", "b2"]
        recorder.handshakes.close()
        assert recorder.closed() == ["a1", "b1", "b2", "c1", "b3"]
        await asyncio.sleep(0)
        assert recorder.begun == []


@pytest.mark.anyio
async def test_of_many_addresses_that_of_the_last_handshake_gives_way_to_a_new_one() -> None:
    recorder = Recorder(Handshakes(RequestRate(per_second=0.001, burst=3), 3))
    with contextlib.ExitStack() as stack:
        for name in ("a1", "b1", "c1"):
            recorder.wait(name[0], name, stack)
        while len(recorder.begun) < 3:
            await asyncio.sleep(0)
        for name in ("d1", "a2", "b2", "c2"):
            recorder.wait(name[0], name, stack)
        assert recorder.closed() == ["c2"]
