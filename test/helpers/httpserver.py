"""A real HTTP server on loopback that responds as a test specifies, and records the requests.

The servers of storages, logs and kubelets in helpers are classes of it, or functions that respond.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    """The target of the request line: path and query, or a whole URL for a proxy."""
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    client: tuple[str, int]
    """Address and port: requests with the same one came over one connection."""


@dataclass(frozen=True, slots=True)
class Answer:
    """With `chunks` instead of a body the response is chunked, and sent piece by piece as the iterable yields them.

    `size` is the Content-Length, if it is not that of the body; the connection is closed after such a response, but not
    before `hold` is set.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Iterable[bytes] | None = None
    size: int | None = None
    hold: threading.Event | None = None


def json_answer(value: object, status: int = 200, **headers: str) -> Answer:
    """Returns a response with this value; underscores in names of headers are hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"} | named)


def status_answer(code: int, reason: str, message: str = "no", **headers: str) -> Answer:
    """Returns a response with a Kubernetes Status."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return json_answer(status | {"code": code}, code, **headers)


def range_of(request: Request, size: int) -> tuple[int, int] | None:
    """Returns the first byte that the request asks for, and the one after the last; None if it asks for all."""
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if match is None:
        return None
    return int(match[1]), min(int(match[2]) + 1, size) if match[2] else size


def content_answer(request: Request, content: bytes) -> Answer:
    """Returns a response with the content, or with the range of it that the request asks for."""
    limits = range_of(request, len(content))
    if limits is None:
        return Answer(200, content)
    first, end = limits
    return Answer(206, content[first:end], {"Content-Range": f"bytes {first}-{end - 1}/{len(content)}"})


Respond = Callable[[Request], Answer]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: tests break connections on purpose."""


class HttpServer:
    """Use as a context manager. `respond` runs in the thread of each connection."""

    def __init__(
        self,
        respond: Respond = lambda request: Answer(),
        tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.requests: list[Request] = []
        self._respond = respond
        self._scheme = "https" if tls else "http"
        self._server = _Server((address, 0), self._handler())
        if tls:
            # The connection's own thread makes the handshake at its first read.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="test-http", daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._server.server_address[0]!s}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # one segment per response

            def handle_any(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Prints nothing: a test reports its own failures."""

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        request = read_request(handler)
        self.requests.append(request)
        answer = self._respond(request)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if answer.chunks is None:
            handler.send_header("Content-Length", str(len(answer.body) if answer.size is None else answer.size))
            handler.end_headers()
            handler.wfile.write(answer.body)
            if answer.size is not None:
                handler.close_connection = True
            if answer.hold is not None:
                handler.wfile.flush()
                answer.hold.wait(60.0)
            return
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        for chunk in _and_end(answer.chunks):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            handler.wfile.flush()


def _and_end(chunks: Iterable[bytes]) -> Iterable[bytes]:
    yield from chunks
    yield b""


def read_request(handler: BaseHTTPRequestHandler) -> Request:
    url = urlsplit(handler.path)
    length = int(handler.headers.get("Content-Length") or 0)
    return Request(
        method=handler.command,
        target=handler.path,
        path=url.path,
        query=dict(parse_qsl(url.query)),
        headers={name.lower(): value for name, value in handler.headers.items()},
        body=handler.rfile.read(length),
        client=handler.client_address,
    )
