"""An API server's responses to requests for logs, which a test controls, over real sockets, optionally with TLS."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from helpers.barekubeconfig import write_kubeconfig
from helpers.certificates import server_context
from helpers.httpserver import HttpServer, read_request
from tfjob_controller.kube.config.kubeconfig import Config, load_config

WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, which waits for the test's response."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    _socket: socket.socket

    def begin(self, status: int = 200) -> Asked:
        """Begins a response of unknown length."""
        self.send(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        return self

    def say(self, *lines: bytes) -> None:
        """Sends each text in a chunk of its own, unchanged."""
        for line in lines:
            self.send(b"%x\r\n%b\r\n" % (len(line), line))

    def end(self) -> None:
        """Ends the response, as a kubelet does when the container has ended."""
        self.send(b"0\r\n\r\n")

    def refuse(self, status: int, body: bytes = b"no", extra: bytes = b"") -> None:
        self.send(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (status, extra, len(body), body))

    def send(self, data: bytes) -> None:
        """Blocks while the client does not read. Sends nothing to a client that has disconnected."""
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def break_off(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def is_hung_up(self) -> bool:
        """Waits for the client to close its end; returns whether it did."""
        self._socket.settimeout(WAIT_SECONDS)
        try:
            return not self._socket.recv(1)
        except ConnectionError:
            return True


class LogServer(HttpServer):
    """Use as a context manager. `pair`: certificate and key, for TLS; `is_mutual`: clients must show the same."""

    def __init__(self, pair: tuple[Path, Path] | None = None, *, is_mutual: bool = False) -> None:
        context = server_context(*pair) if pair is not None else None
        if context is not None and pair is not None and is_mutual:
            context.load_verify_locations(pair[0])
            context.verify_mode = ssl.CERT_REQUIRED
        super().__init__(tls=context)
        self._pair = pair
        self._asked: queue.Queue[Asked] = queue.Queue()
        self._is_over = threading.Event()

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        super().__exit__(*exc)

    def config(self, folder: Path, **cluster: str | bool) -> Config:
        """Returns a configuration for clients with the token `secret-token`, and the certificate if there is one."""
        authority = {"certificate-authority": str(self._pair[0])} if self._pair else {}
        own = {"client-certificate": str(self._pair[0]), "client-key": str(self._pair[1])} if self._pair else {}
        named, user = {"server": self.url, **authority, **cluster}, {"token": "secret-token", **own}
        return load_config(write_kubeconfig(folder / "kubeconfig", named, user))

    def asked(self) -> Asked:
        """Returns the next request. Raises queue.Empty if none comes."""
        return self._asked.get(timeout=WAIT_SECONDS)

    def nobody_asks(self) -> bool:
        return self._asked.empty()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Leaves the connection to the test."""
        request = read_request(handler)
        self._asked.put(Asked(request.path, request.query, request.headers, handler.connection))
        self._is_over.wait()
        handler.close_connection = True
