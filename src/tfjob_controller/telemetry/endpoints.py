"""The endpoints `/healthz`, `/readyz`, `/metrics` and `/debug/`.

Theory of operation. A `Route` is a function that answers GET and HEAD of one path. Routes with the same address share a
server. `/healthz` is answered by the server's event loop itself. All other routes run in a pool of two threads, so a
route that takes long delays no liveness probe. Every client of the pod network can connect, so rendering metrics takes
a tenth of a core at most, whatever the number of requests: a rendering begins only after a pause of nine times the
duration of the one before, and answers all requests of its format that arrived before it began. Those that wait occupy
threads of the pool, so `/readyz` and `/debug/` may wait as long. An exception of a route is logged and answered with
500.

The endpoints are read-only: methods other than GET and HEAD are answered with 501.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import structlog

from tfjob_controller.httpserver.app import JSON, TEXT, App, Limits, Reply, Request, RequestRate
from tfjob_controller.httpserver.server import HttpServer, ListenAddress, ListenError
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# Kubelets, scrapers and people together need only a few connections, and a request every few seconds; the rate leaves
# room for scripts that poll. No request needs a body.
LIMITS = Limits(connections=64, body_bytes=1024, replaces_busy=True, rate=RequestRate(per_second=200.0, burst=800))
_ROUTE_THREADS = 2
# The pause after a rendering is this many times as long as the rendering.
_PAUSE_FACTOR = 9.0


@dataclass(frozen=True, slots=True)
class RouteResponse:
    body: bytes
    status: int = 200
    content_type: bytes = TEXT


# Answers a request in a thread of the pool, `healthz` in the event loop. It may raise.
Route = Callable[[Request], RouteResponse]


def text(body: str, status: int = 200) -> RouteResponse:
    return RouteResponse(body.encode(), status)


def healthz(_: Request) -> RouteResponse:
    """The liveness probe. It succeeds if the process responds, since a restart would correct no other problem."""
    return text("ok\n")


def readyz(problems: Callable[[], list[str]]) -> Route:
    """A route that returns ok, or the problems for which the program is not ready."""

    def answer(_: Request) -> RouteResponse:
        found = problems()
        return text("".join(f"not ready: {problem}\n" for problem in found), 503) if found else text("ok\n")

    return answer


@dataclass(frozen=True, slots=True)
class _Rendering:
    begin: float
    response: RouteResponse


class MetricsRoute:
    """A route that serves the metrics that `exposition(accept)` returns as content type and body. Thread-safe.

    A response is rendered after its request came, so it is never older. `sleep` waits for a number of seconds.
    """

    def __init__(
        self, exposition: Callable[[str], tuple[str, bytes]], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._exposition = exposition
        self._sleep = sleep
        self._lock = threading.Lock()
        self._latest_by_openmetrics: dict[bool, _Rendering] = {}
        self._next_begin = 0.0

    def __call__(self, request: Request) -> RouteResponse:
        accept = request.accept.decode("latin-1")
        is_openmetrics = "application/openmetrics-text" in accept
        with self._lock:
            latest = self._latest_by_openmetrics.get(is_openmetrics)
            if latest is None or latest.begin <= request.begin:
                self._sleep(max(0.0, self._next_begin - time.monotonic()))
                begin = time.monotonic()
                content_type, body = self._exposition(accept)
                end = time.monotonic()
                self._next_begin = end + _PAUSE_FACTOR * (end - begin)
                latest = self._latest_by_openmetrics[is_openmetrics] = _Rendering(
                    begin, RouteResponse(body, content_type=content_type.encode())
                )
            return latest.response


def servers_for(wanted: list[tuple[ListenAddress | None, dict[str, Route]]], clock: Clock) -> list[HttpServer]:
    """One server per address with all routes for it; routes without an address are not served. Raises ListenError."""
    merged: dict[ListenAddress, dict[str, Route]] = {}
    for address, routes in wanted:
        if address is not None:
            merged.setdefault(address, {}).update(routes)
    made: list[HttpServer] = []
    try:
        for address, routes in merged.items():
            made.append(new_server(address, routes, clock))
    except ListenError:
        for server in made:
            server.stop()
        raise
    return made


def new_server(address: ListenAddress, routes: Mapping[str, Route], clock: Clock) -> HttpServer:
    """Returns a server of these routes, which listens already. Raises ListenError."""
    pool = ThreadPoolExecutor(_ROUTE_THREADS, thread_name_prefix=f"http-{address.port}-route")
    return HttpServer(
        f"http-{address.port}",
        address,
        _app(routes, pool),
        LIMITS,
        clock,
        on_stop=lambda: pool.shutdown(wait=False, cancel_futures=True),
    )


def _app(routes: Mapping[str, Route], pool: ThreadPoolExecutor) -> App:
    def respond(request: Request, reply: Reply) -> None:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        # A path such as /debug is answered as /debug/.
        route = routes.get(path) or routes.get(path.rstrip("/") + "/")
        if request.method not in (b"GET", b"HEAD"):
            _write(text("GET only\n", 501), reply)
        elif route is None:
            _write(text("".join(f"{known}\n" for known in sorted(routes)), 404), reply)
        elif route is healthz:
            _write(healthz(request), reply)
        else:
            loop = asyncio.get_running_loop()
            answer = pool.submit(_call, route, path, request)
            answer.add_done_callback(lambda done: _write_from(loop, done, reply))

    return respond


def _call(route: Route, path: str, request: Request) -> RouteResponse:
    try:
        return route(request)
    except Exception:
        log.exception("route failed", path=path)
        return text("internal error: see the log\n", 500)


def _write_from(loop: asyncio.AbstractEventLoop, done: Future[RouteResponse], reply: Reply) -> None:
    # The server may have stopped meanwhile.
    if not done.cancelled() and not loop.is_closed():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_write, done.result(), reply)


def _write(response: RouteResponse, reply: Reply) -> None:
    reply(response.status, response.body, response.content_type)


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
    def answer(_: Request) -> RouteResponse:
        return RouteResponse(json.dumps(content(), default=_plain, indent=1).encode() + b"\n", content_type=JSON)

    return answer


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
