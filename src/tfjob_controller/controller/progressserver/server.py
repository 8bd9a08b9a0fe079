"""The server of the progress protocol: one route, over TLS.

Requests wait for the API server in threads of their own, so that a slow one delays neither connections nor syncs. Their
number is limited, also for each client.

Threads: requests are received and answered in the server's thread; see `httpserver`.
Source: KEP-2779 of kubeflow/trainer; RFC 6750 for the header.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from tfjob_controller.api.common.trainerstatus import MAX_REPORT_BYTES, job_of_path
from tfjob_controller.controller.progressserver.reports import Answer, Reports, refusal
from tfjob_controller.httpserver.app import JSON, App, Limits, Reply, Request, RequestRate
from tfjob_controller.httpserver.server import HttpServer, ListenAddress
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

_CONNECTIONS = 512
# Of one address, which may be that of a node with hundreds of pods. Each pod reports once a second at most.
_RATE = RequestRate(per_second=100.0, burst=400)
# Of all addresses together, which may report fifty times a second.
_HANDSHAKES = RequestRate(per_second=100.0, burst=200)
_THREADS = 8
# Requests in progress, of all clients and of one.
_MAX_REQUESTS, _MAX_OF_CLIENT = 256, 8
_BEARER = b"bearer"
_INTERNAL = refusal(500, "InternalError", "internal error of the controller; see its log")
_NOT_FOUND = refusal(404, "NotFound", "not found")
_FULL = refusal(503, "ServiceUnavailable", "too many reports are in progress: report again later")


class ProgressHttpServer:
    """Serves `POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status`."""

    def __init__(
        self, address: ListenAddress, reports: Reports, tls: Callable[[], ssl.SSLContext], clock: Clock
    ) -> None:
        """Listens at once. Raises ListenError."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="progress-report")
        limits = Limits(_CONNECTIONS, MAX_REPORT_BYTES, replaces_busy=True, rate=_RATE, handshakes=_HANDSHAKES)
        self._server = HttpServer("progress-http", address, new_app(reports, self._pool), limits, clock, tls=tls)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def restarts(self) -> int:
        return self._server.restarts

    def start(self) -> None:
        self._server.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Frees the address; reports in progress end by themselves."""
        ended = self._server.stop(timeout_seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return ended


def new_app(reports: Reports, pool: ThreadPoolExecutor) -> App:
    """Returns the route. Calls of it must come from the thread of one event loop."""
    queue = _ReportQueue(reports, pool)

    def respond(request: Request, reply: Reply) -> None:
        def send(answer: Answer) -> None:
            reply(answer.code, answer.body, JSON)

        target = job_of_path(request.target.decode("latin-1"))
        refused = _problem(request) if target is not None else _NOT_FOUND
        if refused is not None or target is None:
            send(refused or _NOT_FOUND)
        elif not queue.add(request, target, send):
            send(_FULL)

    return respond


def _problem(request: Request) -> Answer | None:
    """Why a request with the path of a job is refused; None if it is a report with a token."""
    if request.method != b"POST":
        return refusal(405, "MethodNotAllowed", "POST only")
    if request.is_too_long:
        return refusal(413, "RequestEntityTooLarge", f"the body is longer than {MAX_REPORT_BYTES} bytes")
    if not _token(request.authorization):
        return refusal(401, "Unauthorized", "the header Authorization must be: Bearer <token>")
    return None


class _ReportQueue:
    """The reports in progress. Only the pool's tasks run in other threads than the server's."""

    def __init__(self, reports: Reports, pool: ThreadPoolExecutor) -> None:
        self._reports = reports
        self._pool = pool
        self._of_client: Counter[str] = Counter()

    def add(self, request: Request, target: tuple[str, str], send: Callable[[Answer], None]) -> bool:
        """Processes a report and calls `send` later; False if the client, or all together, have too many."""
        client = request.client
        if self._of_client[client] >= _MAX_OF_CLIENT or self._of_client.total() >= _MAX_REQUESTS:
            return False
        self._of_client[client] += 1
        loop = asyncio.get_running_loop()

        def end(answer: Answer) -> None:
            self._of_client[client] -= 1
            self._of_client = +self._of_client
            send(answer)

        def work() -> None:
            try:
                answer = self._reports.take(*target, _token(request.authorization), request.body, client)
            except Exception:
                log.exception("report failed")
                answer = _INTERNAL
            # The loop has ended if the server was stopped meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end, answer)

        self._pool.submit(work)
        return True


def _token(authorization: bytes) -> str:
    """The token of the header; empty if it is no bearer token."""
    scheme, _, token = authorization.strip().partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == _BEARER else ""
