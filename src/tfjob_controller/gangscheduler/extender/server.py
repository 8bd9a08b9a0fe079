"""The HTTP server that kube-scheduler calls: sockets, TLS, and the routes to the extender's verbs.

Theory of operation. One event loop runs in a thread of its own. A `bind` call that waits for its gang costs a socket
and some kilobytes; a thousand of them can wait beside the one `filter` that runs at a time. `httpconnection` implements
a connection. The event loop is uvloop's, which takes a third less CPU than asyncio's for kube-scheduler's pattern of
use: a new connection for nearly every bind call.

Every verb's response has status 200, and carries an `Error` if something is wrong, because kube-scheduler reports only
the number of any other status. The exception is 503 until the cluster's state has been read.

A client that can call `bind` can bind pods. The server therefore listens on loopback or requires client certificates.

Threads: `start` and `stop` belong to the server's creator; everything else runs in the server's thread.
Source: kubernetes pkg/scheduler/extender.go (its client has no retries and no limit on connections).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote_to_bytes

import httptools
import structlog
import uvloop

from tfjob_controller.gangscheduler.extender.httpconnection import (
    IDLE_SECONDS,
    JSON,
    MAX_BODY_BYTES,
    TEXT,
    App,
    HttpConnections,
    Reply,
    Request,
)
from tfjob_controller.gangscheduler.extender.verbs import NOT_SYNCED, ExtenderVerbs
from tfjob_controller.gangscheduler.extender.wire import (
    BadRequestError,
    BindResult,
    FilterResult,
    decode_bind_args,
    decode_filter_args,
    encode_answer,
)
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

INTERNAL_ERROR = "internal error of the gang scheduler; see its log"
_TOO_LONG = f"the body is longer than {MAX_BODY_BYTES} bytes"

_Result = FilterResult | BindResult
# Answers a body, at once or later. Raises BadRequestError.
_Verb = Callable[[bytes, Callable[[_Result], None]], None]


class RequestObserver(Protocol):
    """Observes each response, in the server's thread."""

    def answered(self, verb: str, is_error: bool, seconds: float) -> None:
        """`verb` is filter or bind; `seconds` from the request's head to its response, including the wait of bind."""


def new_app(service: ExtenderVerbs, prefix: str = "", observer: RequestObserver | None = None) -> App:
    """`POST <prefix>/filter` and `/bind`, `GET /healthz`."""
    endpoints: dict[bytes, App] = {
        f"{prefix}/filter".encode(): _Endpoint("filter", service, _filter(service), observer),
        f"{prefix}/bind".encode(): _Endpoint("bind", service, _bind(service), observer),
        b"/healthz": lambda _, reply: reply(200, b"ok\n", TEXT),
    }

    def respond(request: Request, reply: Reply) -> None:
        endpoint = endpoints.get(request.target) or endpoints.get(_path(request.target))
        if endpoint is None:
            reply(404, b"not found\n", TEXT)
        else:
            endpoint(request, reply)

    return respond


class _Endpoint:
    """One verb."""

    def __init__(self, name: str, service: ExtenderVerbs, verb: _Verb, observer: RequestObserver | None) -> None:
        self._name = name
        self._service = service
        self._verb = verb
        self._observer = observer

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.method != b"POST":
            reply(405, b"POST only\n", TEXT)
        elif not self._service.is_synced:
            reply(503, NOT_SYNCED.encode(), TEXT)
        else:
            self._run(request, reply)

    def _run(self, request: Request, reply: Reply) -> None:
        def answer(result: _Result, is_error: bool = False) -> None:
            if self._observer is not None:
                self._observer.answered(self._name, is_error, time.monotonic() - request.begin)
            reply(200, encode_answer(result), JSON)

        try:
            if request.is_too_long:
                raise BadRequestError(_TOO_LONG)
            self._verb(request.body, answer)
        except BadRequestError as error:
            answer(self._rejection(str(error)), True)
        except Exception:
            log.exception("call failed", verb=self._name)
            answer(self._rejection(INTERNAL_ERROR), True)

    def _rejection(self, error: str) -> _Result:
        return BindResult(error) if self._name == "bind" else FilterResult(error=error)


def _filter(service: ExtenderVerbs) -> _Verb:
    return lambda body, answer: answer(service.filter(decode_filter_args(body)))


def _bind(service: ExtenderVerbs) -> _Verb:
    return lambda body, answer: service.bind(decode_bind_args(body), answer)


def _path(target: bytes) -> bytes:
    """Returns the path without query and escapes."""
    try:
        return unquote_to_bytes(httptools.parse_url(target).path or b"")
    except httptools.HttpParserInvalidURLError:
        return b""


log = structlog.get_logger(__name__)

# Each waiting call has its own connection; the usual soft limit of 1,024 files would not allow a gang of a thousand.
_WANTED_FILES = 65_536
_FILES_FOR_OTHERS = 256
_BACKLOG = 4096
# Time to write the last responses.
_LAST_ANSWERS_SECONDS = 2.0
_LAST_ANSWERS_POLL_SECONDS = 0.01
_SWEEP_SECONDS = 10.0


class ListenError(Exception):
    """The server cannot or must not listen; the message is one line."""


class ListenAddress(Protocol):
    """Where to listen; `options.BindAddress` is one."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files."""

    certificate: str
    key: str
    client_ca: str
    """Signs the certificates of clients."""


class ExtenderServer:
    """`POST <prefix>/filter` and `/bind`, `GET /healthz`."""

    def __init__(
        self,
        address: ListenAddress,
        service: ExtenderVerbs,
        clock: Clock,
        *,
        prefix: str = "",
        tls: TlsFiles | None = None,
        observer: RequestObserver | None = None,
        connection_limit: int | None = None,
    ) -> None:
        """Listens at once, so that an address in use is found before anything starts. Raises ListenError.

        `connection_limit` is by default what the limit of open files suffices for; it is raised as far as it can be.
        """
        self._service = service
        self._tls = _tls_context(address, tls)
        self._socket = _listen(address)
        self._connection_limit = connection_limit or _connection_limit()
        self._app = new_app(service, prefix.rstrip("/"), observer)
        self._stop = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = SupervisedThread("extender-http", self._serve, stop=self._stop, clock=clock)

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._socket.getsockname()[1])

    @property
    def restarts(self) -> int:
        """How often its thread was restarted."""
        return self._thread.restarts

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Answer waiting calls with an error, free the address and stop the thread; True if it stopped in time."""
        self._stop.set()
        running = self._running
        if running is not None:
            loop, is_over = running
            _call_in(loop, is_over.set)
        ended = self._thread.join(timeout_seconds)
        self._socket.close()
        return ended

    def _serve(self) -> None:
        """Run the event loop. The socket outlives it, in case the thread is restarted."""
        uvloop.run(self._run())

    async def _run(self) -> None:
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        self._running = loop, is_over
        # `stop` may have been called before this loop existed.
        if self._stop.is_set():
            is_over.set()
        connections = HttpConnections(self._app, self._connection_limit)
        server = await loop.create_server(connections.new, sock=self._socket.dup(), ssl=self._tls, backlog=_BACKLOG)
        try:
            await _until(is_over, connections)
        finally:
            self._running = None
            server.close()
            connections.stop()
            if is_over.is_set():
                self._service.stop()
            await _end(connections)


async def _until(is_over: asyncio.Event, connections: HttpConnections) -> None:
    while not is_over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), _SWEEP_SECONDS)
        connections.close_idle(IDLE_SECONDS)


async def _end(connections: HttpConnections) -> None:
    """Wait for the last responses, within a limit."""
    ends_at = time.monotonic() + _LAST_ANSWERS_SECONDS
    while connections.count and time.monotonic() < ends_at:
        await asyncio.sleep(_LAST_ANSWERS_POLL_SECONDS)
    connections.abort()


def _listen(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}") from None
    # Inherited by what it accepts. asyncio sets it only where the protocol number was given, which create_server does
    # not do; without it each answer, head and body, waits 40 ms for kube-scheduler's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _tls_context(address: ListenAddress, tls: TlsFiles | None) -> ssl.SSLContext | None:
    if tls is None:
        if not _is_loopback(address.host):
            raise ListenError(
                f"will not listen on {address} without TLS: whoever reaches it can bind pods. Give a certificate, its "
                "key and the CA of client certificates, or listen on 127.0.0.1"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"cannot use {tls.certificate}, {tls.key} and {tls.client_ca}: {error}") from None
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _connection_limit() -> int:
    """Allow as many open files as the system lets us; calls beyond what they suffice for are answered with 503."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(1, (wanted if soft == resource.RLIM_INFINITY else soft) - _FILES_FOR_OTHERS)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        log.debug("the event loop has ended already")
