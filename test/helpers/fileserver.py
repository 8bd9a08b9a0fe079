"""A real web server on loopback that serves one file, with ranges or without, and has the faults that a test sets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from helpers.httpserver import Answer, HttpServer, Request, range_of


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


class FileServer(HttpServer):
    """Use as a context manager. Every request is for the file; the first one requests only its first byte.

    `fault_of` returns the fault of the request with this number; the first is 0.
    """

    def __init__(
        self,
        content: bytes,
        *,
        has_ranges: bool = True,
        etag: str = '"one"',
        fault_of: Callable[[int], Fault | None] = lambda number: None,
    ) -> None:
        super().__init__(self._answer_for)
        self.content = content
        self.has_ranges = has_ranges
        self.etag = etag
        self.fault_of = fault_of

    @property
    def host(self) -> str:
        return super().url.removeprefix("http://")

    @property
    def url(self) -> str:
        """The URL of the file."""
        return f"http://{self.host}/files/data.tar.gz"

    @property
    def ranges(self) -> list[str]:
        """The Range header of each request; empty without one."""
        return [request.headers.get("range", "") for request in self.requests]

    def _answer_for(self, request: Request) -> Answer:
        fault = self.fault_of(len(self.requests) - 1) or Fault()
        if fault.status:
            return Answer(fault.status, b"no")
        size = fault.told_size if fault.told_size >= 0 else len(self.content)
        limits = range_of(request, size) if self.has_ranges else None
        first, end = limits or (0, size)
        headers = {"ETag": self.etag} if self.etag else {}
        if limits and first >= size:
            return Answer(416, b"", {"Content-Range": f"bytes */{size}"} | headers)
        if limits:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        body = self.content[first:end]
        if fault.cut_after >= 0:
            body = body[: fault.cut_after]
        is_short = len(body) < end - first or fault.cut_after >= 0
        return Answer(206 if limits else 200, body, headers, size=end - first if is_short else None, hold=fault.hold)
