"""An HTTPS server in a separate process that responds as the API server does when logs are followed.

    python -m bench.logserver CERTIFICATE KEY LINES_PER_SECOND

It prints its port. Each request gets an endless response with that many lines a second, each with its timestamp: one
line is one chunk and one TLS record, since the kubelet flushes after each and the API server forwards them. Every tenth
line contains metrics.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_STAMP = "2026-01-01T00:00:00.000000000Z"
LINE_BYTES = 120


def certificate(folder: Path) -> tuple[Path, Path]:
    """Creates a self-signed certificate for 127.0.0.1 and returns the paths of certificate and key."""
    pair = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names, "-out", str(pair[0]), "-keyout", str(pair[1])], check=True, capture_output=True)
    return pair


@contextlib.contextmanager
def running(folder: Path, lines_per_second: int) -> Iterator[Path]:
    """Runs a server; yields a kubeconfig for it."""
    pair = certificate(folder)
    command = [sys.executable, "-m", "bench.logserver", *map(str, pair), str(lines_per_second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            yield _kubeconfig(folder, f"https://127.0.0.1:{port}", pair[0])
        finally:
            process.kill()


def _kubeconfig(folder: Path, url: str, authority: Path) -> Path:
    cluster = {"server": url, "certificate-authority": str(authority)}
    config = {
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def line(number: int) -> bytes:
    """Returns a log line; all have the same length."""
    text = f"{_STAMP} step={number:08d} "
    if number % 10 == 0:
        text += f"loss=0.{number % 1000:03d} accuracy=0.5 "
    return text.ljust(LINE_BYTES - 1, "x").encode() + b"\n"


class _Followers:
    """The connections that receive the lines; a broken one is removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[ssl.SSLSocket] = []

    def add(self, connection: ssl.SSLSocket) -> None:
        with self._lock:
            self._connections.append(connection)

    def send(self, chunk: bytes) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.sendall(chunk)
            except OSError:
                with self._lock:
                    self._connections.remove(connection)


def _accept(listener: socket.socket, context: ssl.SSLContext, followers: _Followers) -> None:
    while True:
        plain, _ = listener.accept()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            connection = context.wrap_socket(plain, server_side=True)
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(_HEAD)
            followers.add(connection)


def main() -> None:
    """Serves until killed."""
    certificate_file, key_file, lines_per_second = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    followers = _Followers()
    threading.Thread(target=_accept, args=(listener, context, followers), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    if not lines_per_second:
        threading.Event().wait()
    number, begin = 0, time.monotonic()
    while True:
        number += 1
        text = line(number)
        followers.send(b"%x\r\n%b\r\n" % (len(text), text))
        time.sleep(max(0.0, begin + number / lines_per_second - time.monotonic()))


if __name__ == "__main__":
    main()
