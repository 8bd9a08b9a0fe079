"""An HTTP server in a separate process that streams pods like an API server, as fast as a client can read.

    python -m bench.server PODS EVENTS

It prints its port. The response to every watch is PODS objects as ADDED, the bookmark that ends a streaming list,
EVENTS changes of them, and then nothing until the client disconnects. The lines are encoded in advance, so that the
client never waits for them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from bench.objects import pod, watch_line

FIRST_VERSION = 1000
# About the size of a TCP segment train: an API server with many pending events flushes them together.
_CHUNK_BYTES = 32768


@contextlib.contextmanager
def running(pod_count: int, event_count: int) -> Iterator[str]:
    """Runs a server; yields its URL."""
    command = [sys.executable, "-m", "bench.server", str(pod_count), str(event_count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{_first_line(process)}"
        finally:
            process.terminate()


def _first_line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline().strip() if process.stdout else ""
    if not line:
        raise RuntimeError("the bench server did not start")
    return line


def kubeconfig(url: str, folder: Path) -> Path:
    """Writes a kubeconfig for the server."""
    path = folder / "kubeconfig"
    named = [{"name": "bench", "cluster": {"server": url}}], [{"name": "bench", "user": {}}]
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    config = {"clusters": named[0], "users": named[1], "contexts": [context], "current-context": "bench"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    return path


def lines(pod_count: int, event_count: int) -> Iterator[bytes]:
    """Yields the lines of the response to a watch."""
    for number in range(pod_count):
        yield watch_line("ADDED", pod(number, FIRST_VERSION + number))
    yield end_of_list(FIRST_VERSION + pod_count)
    yield from events(pod_count, event_count)


def events(pod_count: int, event_count: int) -> Iterator[bytes]:
    """Yields changes of pods."""
    begin = FIRST_VERSION + pod_count + 1
    for number in range(event_count):
        yield watch_line("MODIFIED", pod(number % pod_count, begin + number))


def end_of_list(version: int) -> bytes:
    meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return watch_line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chunks: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for chunk in self.chunks:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.rfile.read(1)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def _chunks(pod_count: int, event_count: int) -> Iterator[bytes]:
    buffer = bytearray()
    for line in lines(pod_count, event_count):
        buffer += line + b"\n"
        if len(buffer) > _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    # An empty chunk would end the response.
    if buffer:
        yield bytes(buffer)


def main() -> None:
    """Serves until killed."""
    _Handler.chunks = list(_chunks(int(sys.argv[1]), int(sys.argv[2])))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
