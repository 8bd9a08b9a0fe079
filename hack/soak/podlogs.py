"""Serves logs of pods without containers: a line with metrics every second until the pod ends.

The API server requests them over HTTPS, as from a kubelet. Threads: one for each log that is read.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

_LINE_SECONDS = 1.0
_MOST_KNOWN = 1000


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Creates a self-signed certificate for 127.0.0.1 and returns the paths of certificate and key."""
    pair = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", str(pair[0]), "-keyout", str(pair[1])], check=True, capture_output=True)
    return pair


class PodLogs:
    """An HTTPS server that runs within its block (see the module)."""

    def __init__(self, folder: Path) -> None:
        """Creates the server; certificate and key are written to `folder`."""
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(folder))
        self._server = _Server(("127.0.0.1", 0), self._handler())
        # The first read on the connection's own thread performs the handshake.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="soak-logs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port

    def expect(self, pod: str, seconds: float) -> None:
        """Sets that the pod of that name ends after so many seconds."""
        with self._lock:
            while len(self._ends) >= _MOST_KNOWN:
                self._ends.pop(next(iter(self._ends)))
            self._ends[pod] = time.monotonic() + seconds

    def lines(self, pod: str) -> Iterator[bytes]:
        """Yields the lines as they are written."""
        with self._lock:
            end = self._ends.get(pod, 0.0)
        for step in range(1, 10**6):
            timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
            yield f"{timestamp} step={step} loss=0.{step % 1000:03d} accuracy=0.5\n".encode()
            if time.monotonic() >= end or self._stopping.wait(min(_LINE_SECONDS, end - time.monotonic())):
                return

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        logs = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Serves `/containerLogs/<namespace>/<pod>/<container>`."""
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                # The client may have closed the connection.
                with contextlib.suppress(OSError):
                    for line in logs.lines(self.path.partition("?")[0].split("/")[-2]):
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing, since thousands of requests come."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect during the handshake."""
