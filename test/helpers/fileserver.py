"""A real web server on loopback that serves one file, with ranges or without, and has the faults that a test sets."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_SLICE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one response."""

    status: int = 0
    """A status that is sent instead of the content."""
    cut_after: int = -1
    """Bytes of content after which the connection is closed."""
    told_size: int = -1
    """A wrong size in Content-Length or Content-Range."""
    hold: threading.Event | None = None
    """After `cut_after` bytes the response pauses until this event is set."""
    body: bytes = b"no"


@dataclass(slots=True)
class FileServer:
    """Use as a context manager. Every request is for the file; the first one requests only its first byte."""

    content: bytes
    has_ranges: bool = True
    etag: str = '"one"'
    fault_of: Callable[[int], Fault | None] = lambda number: None
    """Returns the fault of the request with this number; the first is 0."""
    more_headers: Mapping[str, str] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)
    """The Range header of each request; empty without one."""
    paths: list[str] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def host(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/files/data.tar.gz"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range", "")
        number = len(self.ranges)
        self.ranges.append(asked)
        self.paths.append(handler.path)
        fault = self.fault_of(number) or Fault()
        if fault.status:
            self._refuse(handler, fault)
            return
        told = fault.told_size if fault.told_size >= 0 else len(self.content)
        first, end = self._head(handler, asked, told)
        # Otherwise the client waits for the announced bytes.
        handler.close_connection = end > len(self.content)
        _send(handler, self.content[first:end], fault)

    def _head(self, handler: BaseHTTPRequestHandler, asked: str, told: int) -> tuple[int, int]:
        """Sends status and headers; returns which bytes follow."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked) if self.has_ranges else None
        first, last = (int(found[1]), int(found[2] or told - 1)) if found else (0, told - 1)
        if found and first >= told:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{told}")
            first = last + 1
        elif found:
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {first}-{last}/{told}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(last + 1 - first))
        for name, value in {"ETag": self.etag, **self.more_headers}.items():
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        return first, last + 1

    def _refuse(self, handler: BaseHTTPRequestHandler, fault: Fault) -> None:
        handler.send_response(fault.status)
        handler.send_header("Content-Length", str(len(fault.body)))
        handler.end_headers()
        handler.wfile.write(fault.body)


def _send(handler: BaseHTTPRequestHandler, content: bytes, fault: Fault) -> None:
    if fault.cut_after >= 0:
        content, handler.close_connection = content[: fault.cut_after], True
    for at in range(0, len(content), _SLICE_BYTES):
        handler.wfile.write(content[at : at + _SLICE_BYTES])
    handler.wfile.flush()
    if fault.hold is not None:
        fault.hold.wait(60.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: tests break connections on purpose."""


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing: a test reports its own failures."""

    return Handler
