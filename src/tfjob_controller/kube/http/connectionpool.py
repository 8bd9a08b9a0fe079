"""Connections to one API server: opened with urllib3's connection classes, kept and lent by a small pool.

Theory of operation. urllib3 opens a connection: addresses, TLS, client certificate, proxy tunnel. What is sent and
received over it is the business of `exchange.py`. An idle connection that the server has closed is noticed before it is
lent and replaced by a new one.

A call has one deadline for everything: waiting for a free connection, opening it, sending, and receiving. A socket's
own time-out starts again with each byte, so a slow server could hold a caller for as long as it likes. Opening consists
of steps that each get a share of the time that is left: the TCP connect, the tunnel, and the TLS handshake.

Threads: any. A connection belongs to one thread at a time.
Source: urllib3 connection.py, connectionpool.py; client-go rest/config.go (keep-alive probes).
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
from urllib3.util import parse_url

from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.config.serverconfig import ServerConfig

# A reachable server accepts a connection within one retransmission (1 s, then 3 s).
CONNECT_TIMEOUT_SECONDS = 5.0
# client-go's probes: a gateway on the way forgets silent connections.
_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
# A socket that no longer waits is in non-blocking mode; this is the shortest wait that is not.
_SHORTEST_WAIT_SECONDS = 0.001


class NotConnectedError(ConnectionError):
    """No connection could be opened, so nothing was sent. Its argument is the cause.

    `proxy` is the host and port of the proxy through which it was to go; empty without one.
    """

    def __init__(self, cause: BaseException, proxy: str = "") -> None:
        super().__init__(cause)
        self.proxy = proxy


class PoolTimeoutError(TimeoutError):
    """All connections were in use until the deadline."""


class Deadline:
    """The end of a call in real time: a socket's time-outs follow no other clock."""

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_seconds(self) -> float:
        """What is left, never less than a millisecond."""
        return max(_SHORTEST_WAIT_SECONDS, self._end - time.monotonic())

    def arm(self, connection: socket.socket) -> None:
        """Limit the socket's next wait to the time that is left. Raises TimeoutError if there is none."""
        left_seconds = self._end - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError("the deadline has passed")
        connection.settimeout(left_seconds)


class ConnectionPool:
    """Lends connections, keeping at most `size` idle ones.

    With `block` there are never more than `size`, and a caller waits for a free one; otherwise a further one is opened.
    """

    def __init__(self, config: Config, size: int, *, block: bool) -> None:
        self._config = config
        self._size = size
        self._free = threading.Semaphore(size) if block else None
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._is_closed = False

    def acquire(self, deadline: Deadline) -> HTTPConnection:
        """Lend an open connection; the caller must `release` it. Raises PoolTimeoutError and NotConnectedError."""
        if self._free is not None and not self._free.acquire(timeout=deadline.left_seconds()):
            raise PoolTimeoutError("no connection became free in time")
        try:
            return self._idle_connection() or self._open(deadline)
        except BaseException:
            self._free_slot()
            raise

    def release(self, connection: HTTPConnection, *, is_reusable: bool) -> None:
        """Take a connection back, and close it unless it can be lent again."""
        with self._lock:
            is_kept = is_reusable and not self._is_closed and len(self._idle) < self._size
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        self._free_slot()

    def close(self) -> None:
        """Close idle connections now and lent ones as they come back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _idle_connection(self) -> HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_connected:
                return connection
            connection.close()

    def _open(self, deadline: Deadline) -> HTTPConnection:
        server = self._config.server
        try:
            connection = new_connection(server, self._config.certificate)
        except OSError as error:
            raise NotConnectedError(error) from error
        connect(connection, deadline)
        return connection

    def _free_slot(self) -> None:
        if self._free is not None:
            self._free.release()


def new_connection(
    server: ServerConfig, certificate: tuple[str, str] | None, *, with_tls: bool = True
) -> HTTPConnection | HTTPSConnection:
    """A connection that is not open yet, through the server's proxy if it has one.

    Without `with_tls` the caller speaks TLS over the open connection itself. Raises OSError for unusable certificates.
    """
    url = urlsplit(server.url)
    is_https = url.scheme == "https"
    host, port = url.hostname or "", url.port or (443 if is_https else 80)
    proxy = parse_url(server.proxy) if server.proxy else None
    proxy_config = ProxyConfig(None, False, None, None) if proxy is not None else None
    if proxy is not None:
        host, port = proxy.host or "", proxy.port or (443 if proxy.scheme == "https" else 80)
    options = _socket_options()
    connection: HTTPConnection | HTTPSConnection
    if (is_https and with_tls) or (proxy is not None and proxy.scheme == "https"):
        connection = HTTPSConnection(
            host.strip("[]"),
            port,
            socket_options=options,
            proxy=proxy,
            proxy_config=proxy_config,
            ssl_context=server.tls_context(certificate),
            server_hostname=server.name or None if is_https else None,
        )
    else:
        connection = HTTPConnection(
            host.strip("[]"), port, socket_options=options, proxy=proxy, proxy_config=proxy_config
        )
    if proxy is not None and is_https:
        name = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
        scheme = proxy.scheme or "http"
        connection.set_tunnel(name, url.port or 443, headers=server.proxy_headers, scheme=scheme)
    return connection


def connect(connection: HTTPConnection, deadline: Deadline) -> None:
    """Open the connection. Raises NotConnectedError."""
    is_proxied = connection.proxy is not None
    share_seconds = deadline.left_seconds() / (3 if is_proxied else 2)
    connection.timeout = min(CONNECT_TIMEOUT_SECONDS, share_seconds)
    # A proxy's answer is read line by line, which no time-out of the socket limits as a whole.
    watch = threading.Timer(2 * connection.timeout, _shut_down, [connection]) if is_proxied else None
    if watch is not None:
        watch.daemon = True
        watch.start()
    try:
        connection.connect()
    except (OSError, urllib3.exceptions.HTTPError, http.client.HTTPException) as error:
        connection.close()
        raise NotConnectedError(error, connection.proxy.netloc or "" if connection.proxy else "") from error
    finally:
        if watch is not None:
            watch.cancel()


def shut_down(connection: HTTPConnection) -> None:
    """End the connection under a thread that reads from it: that thread wakes up. It must still be closed."""
    outer = connection.sock
    # TLS to a proxy and TLS through it: urllib3's transport, which has no method for this, over the proxy's socket.
    inner = getattr(outer, "socket", outer)
    if inner is not None:
        with contextlib.suppress(OSError, ValueError):
            inner.shutdown(socket.SHUT_RDWR)


def _shut_down(connection: HTTPConnection) -> None:
    # During a handshake the plain socket belongs to the TLS layer, whose own time-out then counts.
    with contextlib.suppress(OSError, ssl.SSLError):
        shut_down(connection)


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    """urllib3's own, and the kernel's keep-alive probes as far as this system has them."""
    options: list[tuple[int, int, int | bytes]] = list(HTTPConnection.default_socket_options)
    options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    found = [(getattr(socket, name, None), value) for name, value in _PROBES]
    return [*options, *((socket.IPPROTO_TCP, name, value) for name, value in found if name is not None)]
