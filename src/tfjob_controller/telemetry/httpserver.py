"""The HTTP server of `/healthz`, `/readyz`, `/metrics` and `/debug/`.

Theory of operation. A `Route` is a function that answers GET of one path. Routes with the same address share a server.
Each server has one thread that accepts connections and one thread per connection, so a slow scraper does not delay a
probe. Every client of the pod network can connect, so the number of connections is limited to `MAX_CONNECTIONS`: a new
one closes the oldest, and a probe is always accepted. An exception of a route is logged and answered with 500.

The server is read-only: methods other than GET and HEAD are answered with 501.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import structlog

log = structlog.get_logger(__name__)

TEXT = "text/plain; charset=utf-8"

# A connection without progress is closed after this time.
_CLIENT_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.1
# Kubelets, scrapers and people together need only a few.
MAX_CONNECTIONS = 64


class BindError(Exception):
    """The server cannot listen on the address, which the message names."""


class Address(Protocol):
    """Where to listen, such as `options.BindAddress`."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RouteResponse:
    body: bytes
    status: int = 200
    content_type: str = TEXT


# Handles a GET request; the argument is its Accept header.
Route = Callable[[str], RouteResponse]


def text(body: str, status: int = 200) -> RouteResponse:
    return RouteResponse(body.encode(), status)


def healthz(_: str) -> RouteResponse:
    """A liveness probe: the process answers. Restarting the process would correct nothing else."""
    return text("ok\n")


def readyz(problems: Callable[[], list[str]]) -> Route:
    """A route that returns ok, or the problems for which the program is not ready."""

    def answer(_: str) -> RouteResponse:
        found = problems()
        return text("".join(f"not ready: {problem}\n" for problem in found), 503) if found else text("ok\n")

    return answer


def metrics(exposition: Callable[[str], tuple[str, bytes]]) -> Route:
    """A route that serves a registry; see `Metrics.exposition`."""

    def answer(accept: str) -> RouteResponse:
        content_type, body = exposition(accept)
        return RouteResponse(body, content_type=content_type)

    return answer


class HttpServer:
    """The server of one address."""

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
        """The port that the server listens on, also if port 0 was requested."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """Stops accepting connections and releases the address; running requests may finish."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(timeout_seconds)
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(_POLL_SECONDS)


class _Connections:
    """The open connections, the oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        """Adds a connection and, above the limit, shuts down the oldest one, whose thread then closes it."""
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
    """A server class, since the standard library configures servers by class attributes."""
    connections = _Connections()

    class Http(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True
        # With the default of 5, connections are lost while the accepting thread waits for a core. Their clients retry
        # after one second and then after three, when a probe has failed already.
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
    """Logs the current exception of a request; the standard library would print a traceback."""
    if isinstance(sys.exception(), OSError):
        log.debug("client disconnected", client=client[0])
    else:
        log.exception("request failed", client=client[0])


def servers_for(wanted: list[tuple[Address | None, dict[str, Route]]]) -> list[HttpServer]:
    """One server per address with all routes for it; routes without an address are not served."""
    merged: dict[Address, dict[str, Route]] = {}
    for address, routes in wanted:
        if address is not None:
            merged.setdefault(address, {}).update(routes)
    made: list[HttpServer] = []
    try:
        for address, routes in merged.items():
            made.append(HttpServer(address, routes, name=str(address.port)))
    except BindError:
        for server in made:
            server.stop()
        raise
    return made


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    """A handler class with these routes, since the standard library creates handlers from a class."""

    class RequestHandler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_SECONDS
        protocol_version = "HTTP/1.1"
        # Otherwise a small response waits for the delayed acknowledgement of the client.
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
            """Logs nothing, since probes and scrapes arrive every few seconds."""

    return RequestHandler


def _ask(routes: Mapping[str, Route], target: str, accept: str) -> RouteResponse:
    path = target.partition("?")[0]
    route = routes.get(path) or routes.get(path.rstrip("/") + "/")
    if route is None:
        return text("".join(f"{known}\n" for known in sorted(routes)), 404)
    try:
        return route(accept)
    except Exception:
        log.exception("route failed", path=path)
        return text("internal error: see the log\n", 500)


JSON = "application/json"


def debug_routes(pages: Mapping[str, Callable[[], Any]]) -> dict[str, Route]:
    """`/debug/threads`, a JSON page for each of `pages` by name, and `/debug/`, which lists them."""
    made: dict[str, Route] = {f"/debug/{name}": _page(content) for name, content in pages.items()}
    made["/debug/threads"] = lambda _: text(thread_stacks())
    listing = "".join(f"{path}\n" for path in sorted(made))
    made["/debug/"] = lambda _: text(listing)
    return made


def thread_stacks() -> str:
    """The current stack of every thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):
        parts.append(f"{names.get(ident, 'unknown')} ({ident})\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def _page(content: Callable[[], Any]) -> Route:
    def answer(_: str) -> RouteResponse:
        return RouteResponse(json.dumps(content(), default=_plain, indent=1).encode() + b"\n", content_type=JSON)

    return answer


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
