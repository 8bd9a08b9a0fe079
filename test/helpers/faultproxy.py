"""A proxy that breaks connections on purpose, between a client and an API server.

Theory of operation. It listens for plain HTTP on loopback and speaks to the server as its URL says (TLS without
checking: both are the test's own). Each connection has two pumps. The one towards the server takes whole requests
(head, and body by Content-Length), so that a fault can be aimed at one of them; the one back passes bytes as they come,
so that watches work.

Faults for all connections: `cut_all` (resets them), `is_swallowing` (half open: everything is read, nothing is passed
on), `is_refusing` (new connections are reset), `delay_seconds` (before each request goes on). Faults for requests, in
the order given, each for `times` requests that match:

    proxy.next(Reply(429, retry_after_seconds=1))                    answered here, never seen by the server
    proxy.next(LoseAnswer(), method="POST")                          carried out, but the answer is lost: outcome
    unknown proxy.next(LoseRequest(), path="/status")                        cut before the server sees it

Use as a context manager; `kubeconfig(folder)` writes one that leads here.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml

_READ_BYTES = 65536
_JOIN_SECONDS = 5.0
# How long a thread may overlook that its connection was closed.
_POLL_MILLISECONDS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the proxy's own: a Status with this code."""

    code: int
    reason: str = ""
    message: str = "the test's proxy says no"
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Pass the request on, wait for the answer's first bytes, then reset the client's connection."""


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """Reset the client's connection instead of passing the request on."""


Fault = Reply | LoseAnswer | LoseRequest


@dataclass(slots=True)
class _Rule:
    fault: Fault
    times: int
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came; `fault` is what was done to it."""

    method: str
    path: str
    fault: Fault | None


class FaultProxy:
    """See the module. Thread-safe."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream = urlsplit(upstream_url)
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._seen: list[Seen] = []
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.is_swallowing = False
        self.is_refusing = False
        self.delay_seconds = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def seen(self) -> list[Seen]:
        with self._lock:
            return list(self._seen)

    def next(self, fault: Fault, *, times: int = 1, method: str = "", path: str = "") -> None:
        """Do this to the next `times` requests of that method whose path contains `path` (empty: any)."""
        with self._lock:
            self._rules.append(_Rule(fault, times, method, path))

    def clear(self) -> None:
        """Forget all that `next` has asked for."""
        with self._lock:
            self._rules.clear()

    def cut_all(self) -> int:
        """Reset every connection there is now; how many."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def kubeconfig(self, folder: Path, token: str = "") -> Path:
        """A kubeconfig in `folder` that leads through this proxy."""
        path = folder / "through-proxy.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def __enter__(self) -> Self:
        self._start(self._accept, "faultproxy-accept")
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        # Closing alone does not wake a thread in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in list(self._threads):
            thread.join(_JOIN_SECONDS)

    def _start(self, target: object, name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)  # type: ignore[arg-type] # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                _reset(client)
                continue
            self._start(lambda client=client: self._serve(client), "faultproxy-request")

    def _serve(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            _reset(client)
            return
        link = _Link(client, server)
        with self._lock:
            self._links.add(link)
        self._start(lambda: self._pump_answers(link), "faultproxy-answer")
        try:
            self._pump_requests(link)
        except OSError:
            pass
        finally:
            link.cut()
            with self._lock:
                self._links.discard(link)

    def _connect(self) -> socket.socket | _SecureSocket:
        secure = self._upstream.scheme == "https"
        port = self._upstream.port or (443 if secure else 80)
        raw = socket.create_connection((self._upstream.hostname or "", port), timeout=10.0)
        raw.settimeout(None)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not secure:
            return raw
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return _SecureSocket(context.wrap_socket(raw))

    def _pump_requests(self, link: _Link) -> None:
        while (request := link.read_request()) is not None:
            if self.is_swallowing:
                continue
            self._stopping.wait(self.delay_seconds)
            method, path = request.split(b" ", 2)[:2]
            fault = self._fault_for(method.decode(), path.decode())
            if isinstance(fault, LoseRequest):
                return
            if isinstance(fault, Reply):
                link.client.sendall(_reply_bytes(fault))
                continue
            link.loses_answer = isinstance(fault, LoseAnswer)
            link.server.sendall(request)

    def _pump_answers(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(_READ_BYTES):
                if link.loses_answer:
                    break
                if not self.is_swallowing:
                    link.client.sendall(data)
        link.cut()

    def _fault_for(self, method: str, path: str) -> Fault | None:
        with self._lock:
            rule = next((r for r in self._rules if r.method in ("", method) and r.path in path), None)
            if rule is not None:
                rule.times -= 1
                if rule.times <= 0:
                    self._rules.remove(rule)
            fault = rule.fault if rule else None
            self._seen.append(Seen(method, path, fault))
            return fault


class _SecureSocket:
    """A TLS connection that one thread reads while another writes, which OpenSSL does not allow by itself.

    With a blocking socket about one request in a hundred was never sent.
    """

    def __init__(self, secure: ssl.SSLSocket) -> None:
        secure.setblocking(False)
        self._secure = secure
        self._lock = threading.Lock()

    def recv(self, size: int) -> bytes:
        while True:
            with self._lock, contextlib.suppress(ssl.SSLWantReadError):
                return self._secure.recv(size)
            self._wait(reading=True)

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self._lock, contextlib.suppress(ssl.SSLWantWriteError):
                rest = rest[self._secure.send(rest) :]
                continue
            self._wait(reading=False)

    def setsockopt(self, level: int, name: int, value: bytes) -> None:
        self._secure.setsockopt(level, name, value)

    def shutdown(self, how: int) -> None:
        self._secure.shutdown(how)

    def close(self) -> None:
        self._secure.close()

    def _wait(self, *, reading: bool) -> None:
        """Until it is likely to go on; OSError once it is closed."""
        number = self._secure.fileno()
        if number < 0:
            raise OSError("the connection was cut")
        poll = select.poll()
        poll.register(number, select.POLLIN if reading else select.POLLOUT)
        poll.poll(_POLL_MILLISECONDS)


class _Link:
    """A client's connection and the one to the server that it leads to."""

    def __init__(self, client: socket.socket, server: socket.socket | _SecureSocket) -> None:
        self.client = client
        self.server = server
        self.loses_answer = False
        self._buffer = b""
        self._cut = threading.Lock()
        self._is_cut = False

    def read_request(self) -> bytes | None:
        """One whole request; None at the end."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._fill():
                return None
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        length = _content_length(head)
        while len(rest) < length:
            data = self.client.recv(_READ_BYTES)
            if not data:
                return None
            rest += data
        self._buffer = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def cut(self) -> None:
        with self._cut:
            if self._is_cut:
                return
            self._is_cut = True
        _reset(self.client)
        _reset(self.server)

    def _fill(self) -> bool:
        data = self.client.recv(_READ_BYTES)
        self._buffer += data
        return bool(data)


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


def _reset(connection: socket.socket | _SecureSocket) -> None:
    """Close with a reset, as a killed peer or a firewall does; wakes threads that read it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
