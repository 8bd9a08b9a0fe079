"""A proxy that breaks connections on purpose, between a client and an API server.

Theory of operation. It listens for plain HTTP on loopback and connects to the server by its URL (TLS without
verification: both belong to the test). Each connection has two threads. The one towards the server reads whole requests
(head, and body by Content-Length), so that a fault can affect one of them; the other one forwards bytes as they arrive,
so that watches work.

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

import contextlib
import functools
import json
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from localcluster.faultlinks import READ_BYTES, Link, connect, reset
from localcluster.programs import write_kubeconfig

_JOIN_SECONDS = 5.0
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

# Called with a request's method and path, in the thread of its connection.
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


class FaultProxy:
    """See the module. Thread-safe."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream = urlsplit(upstream_url)
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._seen: deque[Seen] = deque(maxlen=_REMEMBERED)
        self._links: set[Link] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
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

    def cut_all(self) -> int:
        """Resets all connections and returns their number."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def kubeconfig(self, folder: Path, token: str = "") -> Path:
        """Writes a kubeconfig for this proxy to `folder` and returns its path."""
        path = folder / "through-proxy.kubeconfig"
        write_kubeconfig(path, self.url, token=token)
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

    def _start(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                reset(client)
                continue
            self._start(functools.partial(self._serve, client), "faultproxy-request")

    def _serve(self, client: socket.socket) -> None:
        try:
            server = connect(self._upstream)
        except OSError:
            reset(client)
            return
        link = Link(client, server)
        with self._lock:
            self._links.add(link)
        self._start(functools.partial(self._pump_answers, link), "faultproxy-answer")
        try:
            # A connection that was being opened during `cut_all` must not survive it.
            if not self.is_refusing:
                self._pump_requests(link)
        except OSError:
            pass
        finally:
            link.cut()
            with self._lock:
                self._links.discard(link)

    def _pump_requests(self, link: Link) -> None:
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
            link.late_seconds = fault.seconds if isinstance(fault, Late) else 0.0
            link.server.sendall(request)

    def _pump_answers(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(READ_BYTES):
                if link.loses_answer:
                    break
                if link.late_seconds:
                    self._stopping.wait(link.late_seconds)
                    link.late_seconds = 0.0
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
            fault = rule.fault if rule else self.choose(method, path) if self.choose else None
            self._seen.append(Seen(method, path, fault))
            return fault


def _reply_bytes(reply: Reply) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": reply.code}
    body = json.dumps(status | {"reason": reply.reason, "message": reply.message}).encode()
    lines = [f"HTTP/1.1 {reply.code} {responses.get(reply.code, 'No')}", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body)}")
    if reply.retry_after_seconds is not None:
        lines.append(f"Retry-After: {reply.retry_after_seconds}")
    return "\r\n".join((*lines, "", "")).encode() + body
