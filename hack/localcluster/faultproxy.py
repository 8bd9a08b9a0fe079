"""A proxy that breaks connections on purpose, between a client and an API server.

Theory of operation. It listens for plain HTTP on loopback and connects to the server by its URL (TLS without
verification: both belong to the test). Each connection has two tasks. The one towards the server reads whole requests
(head, and body by Content-Length), so that a fault can affect one of them; the other one forwards bytes as they arrive,
so that watches work. One thread runs the tasks of all connections.

Faults for all connections: `cut_all` (resets them), `is_swallowing` (half open: everything is read, nothing is
forwarded), `is_refusing` (new connections are reset), `delay_seconds` (before each request is forwarded). Faults for
requests, in the order given, each for `times` requests that match:

    proxy.next(Reply(429, retry_after_seconds=1))                    the proxy responds; the server gets no request
    proxy.next(LoseAnswer(), method="POST")                          processed, but the client gets no response
    proxy.next(LoseRequest(), path="/status")                        reset before the server gets it
    proxy.next(Late(3.0))                                            processed at once, with a delayed response

If no such fault matches, `choose` selects the fault of a request, if it is set; this allows random faults.

Use it as a context manager; `kubeconfig(folder)` writes a kubeconfig for the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from localcluster.programs import write_kubeconfig

_READ_BYTES = 65536
_CONNECT_SECONDS = 10.0
# The number of recorded requests; a long run exceeds it, but no test reads its requests one by one.
_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class Reply:
    """The proxy responds itself, with a Status of this code."""

    code: int
    reason: str = ""
    message: str = "refused by the test's proxy"
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Forwards the request, waits for the first bytes of the response, and resets the client's connection."""


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """Resets the client's connection instead of forwarding the request."""


@dataclass(frozen=True, slots=True)
class Late:
    """Forwards the request at once, and the response after a delay."""

    seconds: float


Fault = Reply | LoseAnswer | LoseRequest | Late

# Called with a request's method and path, in the proxy's thread: it must not wait.
Choose = Callable[[str, str], Fault | None]


@dataclass(slots=True)
class _Rule:
    fault: Fault
    times: int
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A received request; `fault` is the fault that was injected."""

    method: str
    path: str
    fault: Fault | None


@dataclass(eq=False, slots=True)
class _Link:
    """A client's connection, and the connection to the server behind it. The last two are of its current request."""

    client: StreamWriter
    server: StreamWriter
    loses_answer: bool = False
    late_seconds: float = 0.0


class FaultProxy:
    """See the module. Thread-safe."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream = urlsplit(upstream_url)
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._seen: deque[Seen] = deque(maxlen=_REMEMBERED)
        # Of clients and servers; the proxy's thread alone uses them.
        self._connections: set[StreamWriter] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faultproxy", daemon=True)
        self.is_swallowing = False
        self.is_refusing = False
        self.delay_seconds = 0.0
        self.choose: Choose | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def seen(self) -> list[Seen]:
        with self._lock:
            return list(self._seen)

    def next(self, fault: Fault, *, times: int = 1, method: str = "", path: str = "") -> None:
        """Injects a fault into the next `times` requests of that method whose path contains `path` (empty: any)."""
        with self._lock:
            self._rules.append(_Rule(fault, times, method, path))

    def clear(self) -> None:
        """Removes all faults that `next` has added."""
        with self._lock:
            self._rules.clear()

    def cut_all(self) -> None:
        """Resets all connections."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result()

    def kubeconfig(self, folder: Path, token: str = "") -> Path:
        """Writes a kubeconfig for this proxy to `folder` and returns its path."""
        path = folder / "through-proxy.kubeconfig"
        write_kubeconfig(path, self.url, token=token)
        return path

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, sock=self._listener), self._loop).result()
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await self._cut_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut_all(self) -> None:
        for connection in self._connections:
            _reset(connection)
        await asyncio.sleep(0)  # They are closed in the loop's next round.

    async def _serve(self, requests: StreamReader, client: StreamWriter) -> None:
        connections = [client]
        self._connections.add(client)
        try:
            # A connection that was being opened during `cut_all` must not survive it.
            if not self.is_refusing:
                answers, server = await self._connect()
                connections.append(server)
                self._connections.add(server)
                if not self.is_refusing:
                    await self._forward(_Link(client, server), requests, answers)
        except (OSError, EOFError):
            pass
        finally:
            for connection in connections:
                self._connections.discard(connection)
                _reset(connection)

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        """Opens a connection to the server. Raises OSError."""
        secure, host = self._upstream.scheme == "https", self._upstream.hostname or ""
        port = self._upstream.port or (443 if secure else 80)
        opening = asyncio.open_connection(host, port, ssl=_unverified() if secure else None)
        return await asyncio.wait_for(opening, _CONNECT_SECONDS)

    async def _forward(self, link: _Link, requests: StreamReader, answers: StreamReader) -> None:
        """Forwards in both directions until one of them ends."""
        backwards = asyncio.create_task(self._pump_answers(answers, link))
        try:
            await self._pump_requests(requests, link)
        finally:
            backwards.cancel()

    async def _pump_requests(self, requests: StreamReader, link: _Link) -> None:
        while True:
            head = await requests.readuntil(b"\r\n\r\n")
            request = head + await requests.readexactly(_content_length(head))
            if self.is_swallowing:
                continue
            await asyncio.sleep(self.delay_seconds)
            method, path = request.split(b" ", 2)[:2]
            fault = self._fault_for(method.decode(), path.decode())
            if isinstance(fault, LoseRequest):
                return
            if isinstance(fault, Reply):
                await _send(link.client, _reply_bytes(fault))
                continue
            link.loses_answer = isinstance(fault, LoseAnswer)
            link.late_seconds = fault.seconds if isinstance(fault, Late) else 0.0
            await _send(link.server, request)

    async def _pump_answers(self, answers: StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while (data := await answers.read(_READ_BYTES)) and not link.loses_answer:
                await asyncio.sleep(link.late_seconds)
                link.late_seconds = 0.0
                if not self.is_swallowing:
                    await _send(link.client, data)
        _reset(link.client)  # which also ends the other direction

    def _fault_for(self, method: str, path: str) -> Fault | None:
        with self._lock:
            rule = next((r for r in self._rules if r.method in ("", method) and r.path in path), None)
            if rule is not None:
                rule.times -= 1
                if rule.times <= 0:
                    self._rules.remove(rule)
            fault = rule.fault if rule else self.choose(method, path) if self.choose else None
            self._seen.append(Seen(method, path, fault))
            return fault


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _send(connection: StreamWriter, data: bytes) -> None:
    connection.write(data)
    await connection.drain()


def _reset(connection: StreamWriter) -> None:
    """Closes the connection with a reset, as a killed peer or a firewall does."""
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.transport.abort()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _reply_bytes(reply: Reply) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": reply.code}
    body = json.dumps(status | {"reason": reply.reason, "message": reply.message}).encode()
    lines = [f"HTTP/1.1 {reply.code} {responses.get(reply.code, 'No')}", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body)}")
    if reply.retry_after_seconds is not None:
        lines.append(f"Retry-After: {reply.retry_after_seconds}")
    return "\r\n".join((*lines, "", "")).encode() + body
