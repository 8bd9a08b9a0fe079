"""HTTP connections over real sockets; the application of the test replies when the test wants it to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tfjob_controller.httpserver.app import TEXT, Limits, Reply, Request
from tfjob_controller.httpserver.connection import HttpConnections
from tfjob_controller.httpserver.server import accepting

MAX_BODY_BYTES = 4 * 1024 * 1024
pytestmark = pytest.mark.anyio

LIMITS = Limits(100, MAX_BODY_BYTES, replaces_busy=False, rate=None)


@dataclass
class App:
    """Answers a request with its target and length of its body; those to /park when told."""

    requests: list[Request] = field(default_factory=list)
    parked: list[Reply] = field(default_factory=list)
    answer_bytes: int = 0

    def __call__(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        if request.target == b"/park":
            self.parked.append(reply)
        else:
            words = b"%b %d %d" % (request.target, len(request.body), request.is_too_long)
            reply(200, words + b"x" * self.answer_bytes, TEXT)


class Client:
    """One connection to a server in this event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head, body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return int(head.split()[1]), head, await self.reader.readexactly(length)

    async def is_closed(self) -> bool:
        """Waits for it."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@dataclass(frozen=True)
class Server:
    """A server in the event loop of the test."""

    app: App
    connections: HttpConnections
    port: int

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))


@pytest.fixture
async def server(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Server]:
    """With the limits that `with_limits` names."""
    app = App()
    connections = HttpConnections(app, getattr(request, "param", LIMITS))
    with socket.create_server(("127.0.0.1", 0)) as listener, accepting(listener, connections, None):
        yield Server(app, connections, listener.getsockname()[1])
        connections.abort()


def with_limits(**limits: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", [replace(LIMITS, **limits)], indirect=True, ids=[""])


def post(target: str, body: bytes = b"", *lines: str, version: str = "1.1") -> bytes:
    head = [f"POST {target} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


async def test_a_connection_is_used_again_and_requests_come_in_pieces(server: Server) -> None:
    client = await server.connect()
    for number in range(3):
        for byte in post(f"/{number}", b"abc"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        status, head, body = await client.answer()
        assert (status, body) == (200, f"/{number} 3 0".encode())
        assert b"connection: close" not in head
    assert [request.method for request in server.app.requests] == [b"POST"] * 3


async def test_a_chunked_body_is_one_body(server: Server) -> None:
    client = await server.connect()
    client.send(b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert (await client.answer())[2] == b"/c 5 0"
    assert server.app.requests[0].body == b"abcde"


async def test_requests_that_come_together_are_answered_in_turn(server: Server) -> None:
    client = await server.connect()
    client.send(post("/park") + post("/second", b"12") + post("/third"))
    await until(lambda: bool(server.app.parked))
    assert [request.target for request in server.app.requests] == [b"/park"]
    server.app.parked[0](200, b"first", TEXT)
    assert [(await client.answer())[2] for _ in range(3)] == [b"first", b"/second 2 0", b"/third 0 0"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(post("/a", b"", "Connection: close"), id="the client wants no more"),
        pytest.param(post("/a", b"", version="1.0"), id="HTTP/1.0"),
        pytest.param(post("/a", b"", "Connection: Upgrade", "Upgrade: h2c"), id="another protocol is offered"),
    ],
)
async def test_the_last_answer_says_so_and_the_connection_ends(server: Server, sent: bytes) -> None:
    client = await server.connect()
    client.send(sent)
    status, head, _ = await client.answer()
    assert status == 200
    assert b"connection: close" in head
    assert await client.is_closed()
    await until(lambda: server.connections.count == 0)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"\x16\x03\x01 hello\r\n\r\n", 400, id="no HTTP"),
        pytest.param(post("/a", b"", "Content-Length: 7"), 400, id="two lengths"),
        pytest.param(b"POST /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, id="a length below nothing"),
        pytest.param(post("/a", b"", "Host: one", "host: two"), 400, id="two hosts"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"x" * (LIMITS.head_bytes + 1), 431, id="an endless head"),
    ],
)
async def test_what_is_no_request_ends_the_connection(server: Server, sent: bytes, status: int) -> None:
    client = await server.connect()
    client.send(sent)
    assert (await client.answer())[0] == status
    assert await client.is_closed()
    assert server.app.requests == []


async def test_nonsense_after_a_request_takes_nothing_from_its_answer(server: Server) -> None:
    client = await server.connect()
    client.send(post("/park") + b"nonsense\r\n\r\n")
    await until(lambda: bool(server.app.parked))
    server.app.parked[0](200, b"answer", TEXT)
    assert (await client.answer())[2] == b"answer"
    assert await client.is_closed()


async def test_head_gets_no_body(server: Server) -> None:
    client = await server.connect()
    client.send(b"HEAD /a HTTP/1.1\r\n\r\n" + post("/b"))
    assert b"content-length: 6" in await client.reader.readuntil(b"\r\n\r\n")
    _, head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"/b 0 0"


async def test_a_client_that_expects_100_continue_gets_it(server: Server) -> None:
    client = await server.connect()
    client.send(post("/a", b"12345", "Expect: 100-continue")[:-5])
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"12345")
    assert (await client.answer())[2] == b"/a 5 0"


async def test_a_body_that_is_too_long_is_dropped_and_the_next_is_not(server: Server) -> None:
    client = await server.connect()
    client.send(post("/a", b"x" * (MAX_BODY_BYTES + 1)) + post("/b", b"x"))
    assert (await client.answer())[2] == b"/a 0 1"
    assert (await client.answer())[2] == b"/b 1 0"


async def test_a_body_beyond_measure_is_answered_before_its_end(server: Server) -> None:
    client = await server.connect()
    client.send(post("/a")[:-4].replace(b"Content-Length: 0", b"Content-Length: 999999999999") + b"\r\n\r\n")
    piece = b"x" * (1024 * 1024)
    with_answer = asyncio.create_task(client.reader.read(12))
    while not with_answer.done() and not client.writer.is_closing():
        client.send(piece)
        await asyncio.sleep(0)
        await asyncio.wait([with_answer], timeout=0.001)
    assert [request.is_too_long for request in server.app.requests] == [True]


@with_limits(connections=3)
async def test_a_new_connection_replaces_the_oldest_that_waits_for_nothing(server: Server) -> None:
    busy, idle, young = [await server.connect() for _ in range(3)]
    busy.send(post("/park"))
    await until(lambda: bool(server.app.parked))
    new = await server.connect()
    assert await idle.is_closed()
    for client in (young, new):
        client.send(post("/a"))
        assert (await client.answer())[0] == 200
    server.app.parked[0](200, b"answer", TEXT)
    assert (await busy.answer())[2] == b"answer"
    assert server.connections.count == 3


@pytest.mark.parametrize(
    ("server", "replaces_busy"),
    [(replace(LIMITS, connections=2, replaces_busy=each), each) for each in (False, True)],
    indirect=["server"],
)
async def test_of_busy_connections_the_oldest_is_replaced_only_where_the_server_says_so(
    server: Server, replaces_busy: bool
) -> None:
    first, second = [await server.connect() for _ in range(2)]
    first.send(post("/park"))
    await until(lambda: len(server.app.parked) == 1)
    second.send(post("/park"))
    await until(lambda: len(server.app.parked) == 2)
    third = await server.connect()
    assert await (first if replaces_busy else third).is_closed()
    server.app.parked[1](200, b"answer", TEXT)
    assert (await second.answer())[2] == b"answer"


@with_limits(connections=4)
async def test_a_client_with_many_connections_displaces_only_itself(server: Server) -> None:
    other = await server.connect()
    port = other.writer.get_extra_info("peername")[1]
    many = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(20)]
    await until(lambda: many[-4][0].at_eof())
    other.send(post("/a"))
    assert (await other.answer())[0] == 200
    assert [reader.at_eof() for reader, _ in many] == [True] * 17 + [False] * 3


async def test_idle_and_incomplete_connections_are_closed_and_parked_ones_are_not(server: Server) -> None:
    idle, half_sent, parked = [await server.connect() for _ in range(3)]
    half_sent.send(b"POST / HT")
    parked.send(post("/park"))
    await until(lambda: server.connections.count == 3 and bool(server.app.parked))
    now = asyncio.get_running_loop().time()
    server.connections.close_overdue(now)
    assert server.connections.count == 3
    server.connections.close_overdue(now + LIMITS.request_seconds)
    assert await half_sent.is_closed()
    await until(lambda: server.connections.count == 2)
    server.connections.close_overdue(now + LIMITS.idle_seconds)
    assert await idle.is_closed()
    server.app.parked[0](200, b"answer", TEXT)
    assert (await parked.answer())[2] == b"answer"


async def test_a_byte_now_and_then_gains_no_time(server: Server) -> None:
    client, loop = await server.connect(), asyncio.get_running_loop()
    begin = loop.time()
    client.send(b"P")
    await until(lambda: any_deadline(server.connections) <= loop.time() + LIMITS.request_seconds)
    begun = loop.time()
    for byte in post("/a")[1:-1]:
        client.send(bytes([byte]))
        await asyncio.sleep(0.001)
    assert begin + LIMITS.request_seconds <= any_deadline(server.connections) <= begun + LIMITS.request_seconds


def any_deadline(connections: HttpConnections) -> float:
    return min((each.deadline for each in connections.all()), default=float("inf"))


async def test_a_response_that_is_not_read_is_dropped(server: Server) -> None:
    server.app.answer_bytes = 32 * 1024 * 1024
    client = await server.connect()
    client.send(post("/a"))
    await until(lambda: bool(server.app.requests))
    server.connections.close_overdue(asyncio.get_running_loop().time() + LIMITS.response_seconds)
    await until(lambda: server.connections.count == 0)


CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        pytest.param(b"GET /", b"x" * 65_536, id="target"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", b"x" * 65_536, id="value"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 100, id="fields"),
        pytest.param(CHUNKED, b"2\r\nxx\r\n" * 1000, id="chunks"),
        pytest.param(CHUNKED, b"2;" + b"x" * 65_536, id="extension of a chunk"),
        pytest.param(CHUNKED + b"0\r\na: ", b"x" * 65_536, id="value of a trailer"),
    ],
)
async def test_requests_without_an_end_are_refused_early(server: Server, head: bytes, endless: bytes) -> None:
    client = await server.connect()
    client.send(head)
    status, sent = asyncio.create_task(client.reader.read(12)), 0
    while not status.done() and sent < 64 * 1024 * 1024:
        client.send(endless)
        sent += len(endless)
        await asyncio.wait([status], timeout=0.001)
    # The kernel resets a connection that is closed before all is read.
    with contextlib.suppress(ConnectionResetError):
        assert await status in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")
    assert sent < 2 * 1024 * 1024, "what the buffers of the sockets hold, at most"
    assert server.app.requests == []


async def test_once_stopped_each_connection_ends_with_its_answer(server: Server) -> None:
    idle, parked = [await server.connect() for _ in range(2)]
    parked.send(post("/park"))
    await until(lambda: server.connections.count == 2 and bool(server.app.parked))
    server.connections.stop()
    assert await idle.is_closed()
    server.app.parked[0](200, b"answer", TEXT)
    assert b"connection: close" in (await parked.answer())[1]
    assert await parked.is_closed()
    await until(lambda: server.connections.count == 0)


async def test_a_client_that_does_not_read_responses_gets_no_further_turn(server: Server) -> None:
    server.app.answer_bytes = 4 * 1024 * 1024
    loop, mute = asyncio.get_running_loop(), socket.socket()
    mute.setblocking(False)
    mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    other = await server.connect()
    await loop.sock_connect(mute, other.writer.get_extra_info("peername"))
    await loop.sock_sendall(mute, post("/a") * 100)
    await until(lambda: bool(server.app.requests))
    server.app.answer_bytes = 0
    other.send(post("/b"))
    assert (await other.answer())[2] == b"/b 0 0"
    assert len(server.app.requests) < 100
    while len(server.app.requests) < 101:
        assert await loop.sock_recv(mute, 1024 * 1024)
    mute.close()


async def test_the_response_to_a_closed_connection_is_dropped(server: Server) -> None:
    client = await server.connect()
    client.send(post("/park"))
    await until(lambda: bool(server.app.parked))
    client.writer.transport.abort()
    await until(lambda: server.connections.count == 0)
    server.app.parked[0](200, b"answer", TEXT)
