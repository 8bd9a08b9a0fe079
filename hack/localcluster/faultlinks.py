"""The sockets of a proxy that breaks connections. Whole requests are read from the client's socket.

Threads: for each connection one forwards requests and one forwards responses; `cut` may be called from any thread.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from urllib.parse import SplitResult

READ_BYTES = 65536
# The longest time until a thread notices that its connection was closed.
_POLL_MILLISECONDS = 200


class SecureSocket:
    """A TLS connection that one thread reads while another writes, which OpenSSL does not allow by itself.

    With a blocking socket about one request in a hundred was never sent.
    """

    def __init__(self, secure: ssl.SSLSocket) -> None:
        secure.setblocking(False)
        self._secure = secure
        self._lock = threading.Lock()

    def recv(self, size: int) -> bytes:
        while True:
            with self._lock, contextlib.suppress(ssl.SSLWantReadError):
                return self._secure.recv(size)
            self._wait(reading=True)

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self._lock, contextlib.suppress(ssl.SSLWantWriteError):
                rest = rest[self._secure.send(rest) :]
                continue
            self._wait(reading=False)

    def setsockopt(self, level: int, name: int, value: bytes) -> None:
        self._secure.setsockopt(level, name, value)

    def shutdown(self, how: int) -> None:
        self._secure.shutdown(how)

    def close(self) -> None:
        self._secure.close()

    def _wait(self, *, reading: bool) -> None:
        """Waits until the socket is probably ready. Raises OSError once it is closed."""
        number = self._secure.fileno()
        if number < 0:
            raise OSError("the connection was cut")
        poll = select.poll()
        poll.register(number, select.POLLIN if reading else select.POLLOUT)
        poll.poll(_POLL_MILLISECONDS)


class Link:
    """A client's connection and the connection to the server behind it."""

    def __init__(self, client: socket.socket, server: socket.socket | SecureSocket) -> None:
        self.client = client
        self.server = server
        self.loses_answer = False
        self.late_seconds = 0.0
        self._buffer = b""
        self._cut = threading.Lock()
        self._is_cut = False

    def read_request(self) -> bytes | None:
        """Reads one whole request; returns None at the end."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._fill():
                return None
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        length = _content_length(head)
        while len(rest) < length:
            data = self.client.recv(READ_BYTES)
            if not data:
                return None
            rest += data
        self._buffer = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def cut(self) -> None:
        with self._cut:
            if self._is_cut:
                return
            self._is_cut = True
        reset(self.client)
        reset(self.server)

    def _fill(self) -> bool:
        data = self.client.recv(READ_BYTES)
        self._buffer += data
        return bool(data)


def connect(upstream: SplitResult) -> socket.socket | SecureSocket:
    """Opens a connection to the server of a URL. Raises OSError."""
    secure = upstream.scheme == "https"
    port = upstream.port or (443 if secure else 80)
    raw = socket.create_connection((upstream.hostname or "", port), timeout=10.0)
    raw.settimeout(None)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not secure:
        return raw
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return SecureSocket(context.wrap_socket(raw))


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def reset(connection: socket.socket | SecureSocket) -> None:
    """Closes the connection with a reset, as a killed peer or a firewall does, and wakes its readers."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
