"""HTTP for probes, scrapers and the curious: `/healthz`, `/readyz`, `/metrics`, `/debug/`.

Theory of operation. A `Route` is a function that answers GET of one path; whoever makes the servers says which address
serves which routes, and routes with the same address share a server. Each server has one thread that accepts and one
for each connection: a slow scraper delays nobody's probe. Anybody on the pod network may come, so there are never more
than `MAX_CONNECTIONS`: the oldest goes when one more comes, and a probe is always let in. A route that raises answers
500 and is logged; the server lives on.

Nothing here can be written to: other methods than GET and HEAD answer 501.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import structlog

log = structlog.get_logger(__name__)

TEXT = "text/plain; charset=utf-8"

# A client that sends nothing, or takes nothing, for this long is gone.
_CLIENT_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.1
# Kubelets, scrapers and people together hold a few.
MAX_CONNECTIONS = 64


class BindError(Exception):
    """The address cannot be listened on; one line that names it."""


class Address(Protocol):
    """Where to listen; `options.BindAddress` is one."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    status: int = 200
    content_type: str = TEXT


# Answers a GET; the argument is the request's Accept header.
Route = Callable[[str], Answer]


def text(body: str, status: int = 200) -> Answer:
    return Answer(body.encode(), status)


def healthz(_: str) -> Answer:
    """The process answers: that is all a liveness probe should ask, since a restart would mend nothing else."""
    return text("ok\n")


def readyz(problems: Callable[[], list[str]]) -> Route:
    """A route that says ok, or which problems keep the program from working."""

    def answer(_: str) -> Answer:
        found = problems()
        return text("".join(f"not ready: {problem}\n" for problem in found), 503) if found else text("ok\n")

    return answer


def metrics(exposition: Callable[[str], tuple[str, bytes]]) -> Route:
    """A route that serves a registry; see `Metrics.exposition`."""

    def answer(accept: str) -> Answer:
        content_type, body = exposition(accept)
        return Answer(body, content_type=content_type)

    return answer


class Server:
    """One address and its routes."""

    def __init__(self, address: Address, routes: Mapping[str, Route], name: str) -> None:
        """Listens at once, so that an address in use is found before anything starts. Raises BindError."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        kind = _server_class(family)
        try:
            self._server: ThreadingHTTPServer = kind((address.host, address.port), _handler(routes))
        except OSError as error:
            raise BindError(f"cannot listen on {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._serve, name=f"http-{name}", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """Stop accepting and free the address; requests under way may go on to their end."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(timeout_seconds)
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(_POLL_SECONDS)


class _Connections:
    """Those that are open, the oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        """The oldest is cut off where there are too many: its thread reads an end, and closes it."""
        with self._lock:
            self._open[connection] = None
            oldest = next(iter(self._open)) if len(self._open) > MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)

    def remove(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)


def _server_class(family: socket.AddressFamily) -> type[ThreadingHTTPServer]:
    """The standard library's server wants a class for its settings."""
    connections = _Connections()

    class Http(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True
        # The library's default of 5 loses connections while the accepting thread waits for a core: whoever sent one
        # tries again only after one second, then after three, and a probe has failed by then.
        request_queue_size = 2 * MAX_CONNECTIONS

        def process_request(self, request: Any, client_address: Any) -> None:
            connections.add(request)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            connections.remove(request)
            super().shutdown_request(request)

        def handle_error(self, request: Any, client_address: Any) -> None:
            _on_error(client_address)

    return Http


def _on_error(client: tuple[str, int]) -> None:
    """Called in the request's thread while the exception is handled; the library's own prints a traceback."""
    if isinstance(sys.exception(), OSError):
        log.debug("client went away", client=client[0])
    else:
        log.exception("request failed", client=client[0])


def servers_for(wanted: list[tuple[Address | None, dict[str, Route]]]) -> list[Server]:
    """A server for each address; the same address gets the routes of all that name it, and None gets none."""
    merged: dict[Address, dict[str, Route]] = {}
    for address, routes in wanted:
        if address is not None:
            merged.setdefault(address, {}).update(routes)
    made: list[Server] = []
    try:
        for address, routes in merged.items():
            made.append(Server(address, routes, name=str(address.port)))
    except BindError:
        for server in made:
            server.stop()
        raise
    return made


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    """A handler class with these routes: the standard library's server wants a class."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_SECONDS
        protocol_version = "HTTP/1.1"
        # Else a small answer waits for the client's delayed acknowledgement.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            answer = _ask(routes, self.path, self.headers.get("Accept", ""))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if with_body:
                self.wfile.write(answer.body)

        def version_string(self) -> str:
            return "tfjob-controller"

        def log_message(self, *_: object) -> None:
            """Probes and scrapes come every few seconds: no line for each."""

    return Handler


def _ask(routes: Mapping[str, Route], target: str, accept: str) -> Answer:
    path = target.partition("?")[0]
    route = routes.get(path) or routes.get(path.rstrip("/") + "/")
    if route is None:
        return text("".join(f"{known}\n" for known in sorted(routes)), 404)
    try:
        return route(accept)
    except Exception:
        log.exception("route failed", path=path)
        return text("internal error; the log says which\n", 500)
