"""A server of one address: its socket, its TLS and its event loop.

Theory of operation. One event loop (uvloop's, which takes a third less CPU than asyncio's for kube-scheduler's pattern
of use) runs in a thread of its own, and every connection of the address belongs to it. A request that waits for its
response costs a socket and some kilobytes. A connection is accepted first and counted, and its handshake has a
deadline, so silent connections cannot take all descriptors. Those of an address that opens too many are closed at once,
many in a turn of the event loop, so that others behind them in the kernel's queue need not wait long.

Threads: `start` and `stop` belong to the server's creator; everything else runs in the server's thread.
Source: asyncio's `add_reader` and `connect_accepted_socket`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from tfjob_controller.httpserver.app import App, Limits, PeerCheck
from tfjob_controller.httpserver.connection import HttpConnections
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

_BACKLOG = 4096
_CHEAP_AT_ONCE = 64
# As asyncio waits when no descriptor is left.
_ACCEPT_RETRY_SECONDS = 1.0
# Deadlines of connections are kept to this precision.
_SWEEP_SECONDS = 1.0
# Time to write the last responses.
_LAST_RESPONSES_SECONDS = 2.0
_LAST_RESPONSES_POLL_SECONDS = 0.01

# Returns the settings of the next connection, which may have a renewed certificate.
TlsSettings = Callable[[], ssl.SSLContext]


class ListenError(Exception):
    """The server cannot or must not listen; the message is one line."""


class ListenAddress(Protocol):
    """Where to listen; `options.BindAddress` is one."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class HttpServer:
    """Serves an application at one address."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        app: App,
        limits: Limits,
        clock: Clock,
        *,
        tls: TlsSettings | None = None,
        check_peer: PeerCheck | None = None,
        on_stop: Callable[[], object] | None = None,
    ) -> None:
        """Listens at once, so that an address in use is found before anything starts. Raises ListenError.

        `name` is the thread's. `tls` is called for each connection, in the server's thread, as is `on_stop` when the
        server stops: it answers the requests that wait.
        """
        self._socket = _listen(address)
        self._app = app
        self._limits = limits
        self._tls = tls
        self._check_peer = check_peer
        self._on_stop = on_stop
        self._stop = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = SupervisedThread(name, self._serve, stop=self._stop, clock=clock)

    @property
    def port(self) -> int:
        """The port that the server listens on, also if port 0 was requested."""
        return int(self._socket.getsockname()[1])

    @property
    def restarts(self) -> int:
        """How often its thread was restarted."""
        return self._thread.restarts

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Answers waiting requests, frees the address and stops the thread; True if it stopped in time."""
        self._stop.set()
        running = self._running
        if running is not None:
            loop, is_over = running
            # The loop may have ended meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(is_over.set)
        ended = self._thread.join(timeout_seconds)
        self._socket.close()
        return ended

    def _serve(self) -> None:
        """Runs the event loop. The socket outlives it, in case the thread is restarted."""
        # Not above: the plugin's dashboard, which needs no such server, is imported where uvloop does not exist.
        import uvloop

        uvloop.run(self._run())

    async def _run(self) -> None:
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        self._running = loop, is_over
        # `stop` may have been called before this loop existed.
        if self._stop.is_set():
            is_over.set()
        connections = HttpConnections(self._app, self._limits, self._check_peer)
        listener = self._socket.dup()
        try:
            with accepting(listener, connections, self._tls):
                await _until(is_over, connections)
        finally:
            self._running = None
            listener.close()
            connections.stop()
            if is_over.is_set() and self._on_stop is not None:
                self._on_stop()
            await _end(connections)


@contextlib.contextmanager
def accepting(listener: socket.socket, connections: HttpConnections, tls: TlsSettings | None) -> Iterator[None]:
    """Accepts connections meanwhile."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)

    def accept() -> None:
        try:
            _accept(listener, connections, tls)
        except OSError as error:
            log.warning("cannot accept a connection", error=str(error))
            loop.remove_reader(listener)
            retries.append(loop.call_later(_ACCEPT_RETRY_SECONDS, loop.add_reader, listener, accept))

    retries: deque[asyncio.TimerHandle] = deque(maxlen=1)
    loop.add_reader(listener, accept)
    try:
        yield
    finally:
        for retry in retries:
            retry.cancel()
        loop.remove_reader(listener)


def _accept(listener: socket.socket, connections: HttpConnections, tls: TlsSettings | None) -> None:
    """Accepts one connection, and those before it that are refused or wait, which cost little. Raises OSError."""
    for _ in range(_CHEAP_AT_ONCE):
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        # Also in IPv6 each address counts on its own: the pods of a node, whose clients these are, share a /64.
        if connections.open(client, address[0], None if tls is None else tls()):
            return


async def _until(is_over: asyncio.Event, connections: HttpConnections) -> None:
    while not is_over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), _SWEEP_SECONDS)
        connections.close_overdue(asyncio.get_running_loop().time())


async def _end(connections: HttpConnections) -> None:
    """Waits for the last responses, within a limit."""
    ends_at = time.monotonic() + _LAST_RESPONSES_SECONDS
    while connections.count and time.monotonic() < ends_at:
        await asyncio.sleep(_LAST_RESPONSES_POLL_SECONDS)
    connections.abort()


def _listen(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}") from None
    # Inherited by what it accepts. asyncio sets it only where the protocol number was given, which create_server does
    # not do; without it each response, head and body, waits 40 ms for kube-scheduler's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
