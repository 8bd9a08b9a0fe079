"""An API server's responses to requests for logs, which a test controls, over real sockets, optionally with TLS."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qsl, urlsplit

import yaml

from helpers.certificates import server_context
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


class LogServer:
    """Use as a context manager. `pair`: certificate and key, for TLS; `is_mutual`: clients must show the same."""

    def __init__(self, pair: tuple[Path, Path] | None = None, *, is_mutual: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context: ssl.SSLContext | None = None
        if pair is not None:
            self._context = server_context(*pair)
            if is_mutual:
                self._context.load_verify_locations(pair[0])
                self._context.verify_mode = ssl.CERT_REQUIRED
        self._pair = pair
        self._asked: queue.Queue[Asked] = queue.Queue()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="log-server", daemon=True)

    def __enter__(self) -> LogServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_SECONDS)
        for each in self._sockets:
            each.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._pair else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def config(self, folder: Path, **cluster: str | bool) -> Config:
        """Returns a configuration for clients with the token `secret-token`, and the certificate if there is one."""
        authority = {"certificate-authority": str(self._pair[0])} if self._pair else {}
        own = {"client-certificate": str(self._pair[0]), "client-key": str(self._pair[1])} if self._pair else {}
        kubeconfig = {
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": self.url, **authority, **cluster}}],
            "users": [{"name": "u", "user": {"token": "secret-token", **own}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        return load_config(str(path))

    def asked(self) -> Asked:
        """Returns the next request. Raises queue.Empty if none comes."""
        return self._asked.get(timeout=WAIT_SECONDS)

    def nobody_asks(self) -> bool:
        return self._asked.empty()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._read, args=(plain,), daemon=True).start()

    def _read(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._context.wrap_socket(plain, server_side=True) if self._context else plain
            self._sockets.append(connection)
            data = b""
            while b"\r\n\r\n" not in data:
                if not (received := connection.recv(65536)):
                    return
                data += received
            self._asked.put(_parsed(data, connection))


def _parsed(data: bytes, connection: socket.socket) -> Asked:
    first, *lines = data.decode("latin-1").strip().split("\r\n")
    url = urlsplit(first.split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(url.path, dict(parse_qsl(url.query)), headers, connection)
