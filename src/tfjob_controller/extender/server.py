"""The HTTP server that kube-scheduler calls: sockets and TLS round the `endpoints`.

Theory of operation. One event loop in a thread of its own. A `bind` call is a coroutine that waits for its gang, and
costs a socket and some kilobytes; a thousand of them wait beside the one `filter` that runs at a time. Requests are
parsed in C (httptools) and reach the endpoints without a framework: half the CPU of a call, and kube-scheduler waits.

Whoever can call `bind` can bind pods. So the server listens on loopback, or demands client certificates; it refuses to
do anything else.

Threads: `start` and `stop` belong to whoever made it, all else runs in the server's thread.
Source: kubernetes pkg/scheduler/extender.go (its client: no retries, no limit on connections), uvicorn's Server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog
import uvicorn

from tfjob_controller.extender import endpoints
from tfjob_controller.extender.endpoints import App, Observer
from tfjob_controller.extender.service import Service
from tfjob_controller.kube.clock import Clock
from tfjob_controller.kube.threads import SupervisedThread

log = structlog.get_logger(__name__)

# Longer than Go's client keeps an idle connection (90 s): it closes first, and never meets one that we just closed.
_KEEP_ALIVE_SECONDS = 120
# Each parked call has a connection of its own; the usual soft limit of 1,024 files would end at a gang of a thousand.
_WANTED_FILES = 65_536
_FILES_FOR_OTHERS = 256
_BACKLOG = 4096
# After the parked calls have been answered.
_LAST_ANSWERS_SECONDS = 2


class ListenError(Exception):
    """The server cannot listen, or must not; one line that says where and why."""


class Address(Protocol):
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
        address: Address,
        service: Service,
        clock: Clock,
        *,
        prefix: str = "",
        tls: TlsFiles | None = None,
        observer: Observer | None = None,
        connection_limit: int | None = None,
    ) -> None:
        """Listens at once, so that an address in use is found before anything starts. Raises ListenError.

        `connection_limit` is by default what the limit of open files suffices for; it is raised as far as it can be.
        """
        self._service = service
        self._tls = _tls_context(address, tls)
        self._socket = _listen(address)
        self._connection_limit = connection_limit or _connection_limit()
        self._app = endpoints.app(service, prefix.rstrip("/"), observer)
        self._stop = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, uvicorn.Server] | None = None
        self._thread = SupervisedThread("extender-http", self._serve, stop=self._stop, clock=clock)

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._socket.getsockname()[1])

    @property
    def restarts(self) -> int:
        """How often its thread has died and was started again."""
        return self._thread.restarts

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Answer parked calls with an error, free the address, end the thread; True if it has ended in time."""
        self._stop.set()
        running = self._running
        if running is not None:
            loop, server = running
            _call_in(loop, self._service.stop)
            server.should_exit = True
        ended = self._thread.join(timeout_seconds)
        self._socket.close()
        return ended

    def _serve(self) -> None:
        """One life of the event loop; the socket outlives it, in case that the thread has to be started again."""
        server = uvicorn.Server(_config(self._app, self._tls, self._connection_limit))
        asyncio.run(self._run(server))

    async def _run(self, server: uvicorn.Server) -> None:
        self._running = asyncio.get_running_loop(), server
        # Where `stop` came before it could know of this server.
        server.should_exit = self._stop.is_set()
        try:
            await server.serve(sockets=[self._socket.dup()])
        finally:
            self._running = None


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}") from None
    # Inherited by what it accepts. asyncio sets it only where the protocol number was given, which create_server does
    # not do; without it each answer, head and body, waits 40 ms for kube-scheduler's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _tls_context(address: Address, tls: TlsFiles | None) -> ssl.SSLContext | None:
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


def _config(app: App, tls: ssl.SSLContext | None, connection_limit: int) -> uvicorn.Config:
    """Its own log lines, signal handlers (there are none beside the main thread) and extra headers are off."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connection_limit,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )
    config.load()
    config.ssl = tls
    return config


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
