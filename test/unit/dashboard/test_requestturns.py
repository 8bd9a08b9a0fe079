"""Turns of requests between the clients of the dashboard, over real sockets."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import socket
import termios
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from tfjob_controller.dashboard.front import Connections, accepting
from tfjob_controller.dashboard.requestturns import EACH, TOTAL, RequestTurns

GREEDY, OTHER = "127.0.0.2", "127.0.0.3"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Server:
    """What the application has: who was passed on in which order, and how many are in progress."""

    passed_on: list[str] = field(default_factory=list)
    in_progress: Counter[str] = field(default_factory=Counter)
    most: int = 0
    have_all: bool = False
    answers: bool = True
    # The requests that are answered once all have been read, and the sockets by the address of their client.
    held: list[Inner] = field(default_factory=list)
    sockets: dict[object, socket.socket] = field(default_factory=dict)
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.connections = Connections(lambda: Inner(self), None)

    def has_read(self, client: socket.socket) -> bool:
        """Whether nothing that the client has sent is on its way, or waits in the server's socket."""
        ours = self.sockets[client.getsockname()]
        return not _waiting(client, termios.TIOCOUTQ) and not _waiting(ours, termios.FIONREAD)

    def answer(self) -> None:
        """Answers the requests that were held, and each later one."""
        self.have_all = True
        for each in self.held if self.answers else ():
            each.answer()


def _waiting(sock: socket.socket, what: int) -> int:
    """Returns how many bytes wait in one direction."""
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), what, count)
    return count[0]


class Inner(asyncio.Protocol):
    """In uvicorn's place: answers a request some turns of the event loop later."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = transport.get_extra_info("peername")
        self.server.sockets[self.peer] = transport.get_extra_info("socket")

    def data_received(self, data: bytes) -> None:
        address = self.peer[0]
        self.server.passed_on.append(address)
        self.server.in_progress[address] += 1
        self.server.most = max(self.server.most, self.server.in_progress[address])
        if not self.server.have_all:
            self.server.held.append(self)
        elif self.server.answers:
            asyncio.get_running_loop().call_soon(self.answer)

    def answer(self) -> None:
        connection = self.server.connections.of_client(self.peer)
        if connection is not None:
            self.server.in_progress[self.peer[0]] -= 1
            connection.answered()
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


@contextlib.contextmanager
def clients(port: int, *counts: tuple[str, int]) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, (address, 0)))
            for address, count in counts
            for _ in range(count)
        ]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not condition():
            await asyncio.sleep(0.01)


async def passed_on(server: Server, *counts: tuple[str, int]) -> list[str]:
    """Who is passed on in which order if each connection of these addresses sends a request at the same time."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=1024) as listener,
        clients(listener.getsockname()[1], *counts) as open_,
    ):
        async with accepting(listener, server.connections):
            await until(lambda: all(server.connections.of_client(each.getsockname()) for each in open_))
            for each in open_:
                each.sendall(REQUEST)
            # On a busy machine the last one may arrive long after the first one could have been answered.
            await until(lambda: all(map(server.has_read, open_)))
            server.answer()
            await until(lambda: len(server.passed_on) == len(open_))
    return server.passed_on


@pytest.mark.anyio
async def test_requests_on_hundreds_of_connections_leave_the_next_turn_to_another_address() -> None:
    server = Server()
    order = await passed_on(server, (GREEDY, 200), (OTHER, 1))
    assert order.index(OTHER) <= EACH
    assert server.most <= EACH


@pytest.mark.anyio
async def test_a_request_that_is_not_answered_gives_its_place_back() -> None:
    server = Server(answers=False)
    order = await passed_on(server, (GREEDY, 3 * EACH), (OTHER, 1))
    assert order.index(OTHER) <= EACH
    assert Counter(order) == {GREEDY: 3 * EACH, OTHER: 1}


class Request:
    """A request of one client, which is never answered."""

    def __init__(self, client: str, begun: list[str]) -> None:
        self._client = client
        self._begun = begun

    def take_turn(self) -> None:
        self._begun.append(self._client)


@pytest.mark.anyio
async def test_of_many_clients_few_requests_are_in_progress() -> None:
    turns, begun = RequestTurns(), list[str]()
    for index in range(10 * TOTAL):
        turns.wait(f"client-{index % 50}", Request(f"client-{index % 50}", begun))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == [f"client-{index}" for index in range(TOTAL)]


@pytest.mark.anyio
async def test_requests_of_connections_that_are_lost_take_no_turn() -> None:
    turns, begun = RequestTurns(each=1), list[str]()
    requests = [Request(str(index), begun) for index in range(4)]
    for request in requests:
        turns.wait("client", request)
    turns.end(requests[1])
    await asyncio.sleep(0)
    turns.end(requests[0])
    turns.end(requests[2])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == ["0", "3"]
