"""Connections that their clients never end: whatever they send or leave out, the servers end them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from helpers.certificates import server_context
from helpers.poll import eventually
from tfjob_controller.dashboard import front
from tfjob_controller.httpserver.app import TEXT, Limits, Reply, Request
from tfjob_controller.httpserver.connection import HttpConnections
from tfjob_controller.httpserver.server import accepting

HERE = "127.0.0.1"
TIMEOUT_SECONDS = 60.0
SECONDS = 0.5
GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n\r\n"
ANNOUNCED = "Expect: 100-continue"
UPGRADE = "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
Then = Callable[[socket.socket], None] | None


@contextlib.asynccontextmanager
async def project_server(listener: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    def app(request: Request, reply: Reply) -> None:
        reply(200, b"ok", TEXT)

    seconds = dict.fromkeys(("handshake_seconds", "request_seconds", "response_seconds", "idle_seconds"), SECONDS)
    limits = Limits(connections=100, body_bytes=1000, replaces_busy=False, rate=None, **seconds)  # type: ignore[arg-type]
    connections = HttpConnections(app, limits)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SECONDS)
            connections.close_overdue(asyncio.get_running_loop().time())

    sweeping = asyncio.create_task(sweep())
    with accepting(listener, connections, None if tls is None else lambda: tls):
        yield
    sweeping.cancel()
    connections.abort()


@contextlib.asynccontextmanager
async def dashboard(listener: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_complete = scope["method"] != "POST"
        while not is_complete:
            message = await receive()
            is_complete = not message.get("more_body")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    noting = front.noting_answers(app, lambda: connections)
    config = uvicorn.Config(noting, http="httptools", ws="none", log_config=None)
    config.load()
    state = uvicorn.Server(config).server_state

    def new_protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

    connections = front.Connections(new_protocol, tls)
    async with front.accepting(listener, connections):
        yield
    for connection in list(state.connections):
        connection.transport.abort()


@pytest.fixture
def tls(
    request: pytest.FixtureRequest, certificate: tuple[Path, Path]
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Of the server and of its clients."""
    if request.param == "plain":
        return None, None
    context, trust = server_context(*certificate), ssl.create_default_context(cafile=str(certificate[0]))
    trust.maximum_version = ssl.TLSVersion.TLSv1_2 if request.param == "TLS 1.2" else ssl.TLSVersion.TLSv1_3
    return context, trust


@contextlib.contextmanager
def serving(server: Callable[..., Any], tls: ssl.SSLContext | None) -> Iterator[int]:
    """Runs a server in a thread; the value is its port."""
    with socket.create_server((HERE, 0)) as listener:
        loop, is_over, is_open = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

        async def run() -> None:
            async with server(listener, tls):
                is_open.set()
                await is_over.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
        thread.start()
        try:
            assert is_open.wait(TIMEOUT_SECONDS)
            yield listener.getsockname()[1]
        finally:
            loop.call_soon_threadsafe(is_over.set)
            thread.join(TIMEOUT_SECONDS)
            loop.close()


def end_sending(client: socket.socket) -> None:
    """Half-closes the TCP connection, without an alert of TLS."""
    socket.socket.shutdown(client, socket.SHUT_WR)


def end_tls(client: socket.socket) -> None:
    """Half-closes the connection of TLS, if it is one, but not that of TCP."""
    client.setblocking(False)
    with contextlib.suppress(OSError):
        if isinstance(client, ssl.SSLSocket):
            client.unwrap()
    client.setblocking(True)


def statuses(client: socket.socket) -> list[int]:
    """The statuses that the server sends until it ends the connection."""
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while part := client.recv(65_536):
            received += part
    return [int(part[:3]) for part in received.decode().split("HTTP/1.1 ")[1:]]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


CASES: list[tuple[str, Then, list[int] | None]] = [
    ("", None, []),
    ("", end_sending, []),
    ("GET / HT", end_sending, []),
    (GET, end_sending, None),
    (GET, end_tls, None),
    (POST.format(5, ANNOUNCED), None, [100]),
    (POST.format(5, ANNOUNCED) + "12", end_sending, [100]),
    (POST.format(10**9, ANNOUNCED), None, [100]),
    (GET.replace("\r\n\r\n", UPGRADE.format("websocket")) + "x" * 9000, None, [200]),
    (POST.format(9, UPGRADE.format("h2c").strip()) + "x" * 9000, None, [200]),
    ("CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n" + GET, None, None),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None, [400]),
    (LAST + GET * 100, None, None),
]


@pytest.mark.parametrize(
    ("tls", "reads"),
    [("plain", True), ("plain", False), ("TLS 1.2", False), ("TLS 1.3", True)],
    indirect=["tls"],
)
@pytest.mark.parametrize("server", [project_server, dashboard])
def test_a_connection_that_its_client_never_ends_is_ended(
    server: Callable[..., Any],
    tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None],
    reads: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HANDSHAKE_SECONDS", "HEAD_SECONDS", "REQUEST_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(front, name, SECONDS)
    with serving(server, tls[0]) as port, contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            client = stack.enter_context(socket.create_connection((HERE, port), TIMEOUT_SECONDS))
            return client if tls[1] is None else stack.enter_context(tls[1].wrap_socket(client, server_hostname=HERE))

        def is_answered() -> bool:
            with connect() as client:
                client.sendall(LAST.encode())
                return statuses(client) == [200]

        assert is_answered()
        before, clients = descriptors(), list[socket.socket]()
        for sent, then, _ in CASES:
            clients.append(connect())
            clients[-1].sendall(sent.encode())
            if then is not None:
                then(clients[-1])
        assert is_answered()
        for client, (sent, _, answers) in zip(clients, CASES, strict=True):
            if reads:
                found = statuses(client)
                assert answers in (None, found), (sent[:200], found)
        eventually(lambda: descriptors() <= before + len(CASES))
        assert is_answered()


@pytest.mark.parametrize("tls", ["TLS 1.2"], indirect=True)
def test_a_client_cannot_begin_another_handshake(tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None]) -> None:
    """It would cost as much as a connection."""
    with serving(project_server, tls[0]) as port:
        command = ["openssl", "s_client", "-connect", f"{HERE}:{port}", "-tls1_2"]
        done = subprocess.run(command, input=b"R\n" * 3, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert b"no renegotiation" in done.stderr
