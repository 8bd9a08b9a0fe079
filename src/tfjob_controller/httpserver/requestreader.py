"""Reads the requests of one connection.

Theory of operation. httptools (C) parses the bytes and calls the methods `on_…`, which enforce the limits on the head,
the chunks, the trailer and the body of a request. A body that is too long is read to its end and dropped, because a
client reads the response only after it has sent its body. The connection ends if it is longer than `_DROPPED_BODIES`
times the limit.

Threads: everything runs in the event loop's. Source: RFC 9112.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

from tfjob_controller.httpserver.app import Limits, Request

# A proxy may send a body in chunks. Each costs some calls, whatever its length.
_MAX_CHUNKS = 4096
_CHUNK_HEAD_BYTES = 16
_DROPPED_BODIES = 16
# The parser rejects longer numbers.
_LENGTH_DIGITS = 18

_TOO_LARGE = (431, b"the request has too many or too long header fields, or too many chunks\n")
_INVALID = (400, b"this is not HTTP/1.1\n")
_HOSTS = (400, b"a request has only one Host field\n")
# The status and the text of a response that ends the connection.
Refusal = tuple[int, bytes]


@dataclass(slots=True)
class _Reading:
    """The part of a request that has been read."""

    begin: float = 0.0
    is_in_head: bool = True
    read: int = 0
    """Bytes of it in buffers that contain no other request."""
    target: bytes = b""
    accept: bytes = b""
    authorization: bytes = field(default=b"", repr=False)
    length: int = 0
    """The length of its body according to its head; 0 if the head has none."""
    expects_continue: bool = False
    head_bytes: int = 0
    """Bytes of its target and fields."""
    fields: int = 0
    hosts: int = 0
    chunks: int = 0
    body: bytearray = field(default_factory=bytearray)
    received: int = 0
    """Bytes of its body, including the dropped ones."""


class RequestReader:
    """Reads the requests of one connection; it implements httptools' callbacks."""

    def __init__(self, limits: Limits, clock: Callable[[], float], client: str) -> None:
        """`client` is the address of the client, without its port."""
        self._limits = limits
        self._clock = clock
        self._client = client
        self._parser = httptools.HttpRequestParser(self)
        self._request = _Reading()
        self.complete: deque[Request] = deque()
        """The complete requests that the caller has not removed yet."""
        self.begun = 0
        """The number of requests of which a part was read."""
        self.is_in_request = False
        """Whether the last request is incomplete."""
        self.is_ended = False
        """Whether the rest of the connection is ignored."""

    @property
    def wanted_bytes(self) -> int:
        """How many bytes to feed next: the rest of the body, and the beginning of a pipelined request."""
        return max(0, self._request.length - self._request.received) + self._limits.pipelined_bytes

    def feed(self, data: bytes | memoryview) -> Refusal | None:
        """Reads bytes. Returns a response if they are not a valid request; the connection ends with it."""
        if self.is_ended:
            return None
        # All of the data belongs to this request, unless a further one begins in it.
        begun = self.begun + (not self.is_in_request)
        refusal = self._parse(data)
        # The parser calls nothing for an incomplete field, and for extensions of chunks.
        if refusal is None and self.is_in_request and self.begun == begun and not self.is_ended:
            self._request.read += len(data)
            chunk_heads = 0 if self._request.is_in_head else _MAX_CHUNKS * _CHUNK_HEAD_BYTES
            if self._request.read - self._request.received > self._limits.head_bytes + chunk_heads:
                refusal = _TOO_LARGE
        self.is_ended |= refusal is not None
        return refusal

    def expects_continue(self) -> bool:
        """Whether the client waits for 100 Continue; True once for each request."""
        expects, self._request.expects_continue = self._request.expects_continue, False
        return expects

    def _parse(self, data: bytes | memoryview) -> Refusal | None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered in HTTP/1.1; what follows it is another protocol.
            self.is_ended = True
        except httptools.HttpParserCallbackError:
            return _TOO_LARGE if self._request.hosts < 2 else _HOSTS
        except httptools.HttpParserError:
            return _INVALID
        return None

    # Called by the parser

    def on_message_begin(self) -> None:
        self._request = _Reading(begin=self._clock())
        self.begun += 1
        self.is_in_request = True

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a field of the head or of the trailer."""
        self._request.fields += 1
        self._count_head(len(name) + len(value))
        name = name.lower()
        if name == b"accept":
            self._request.accept = value
        elif name == b"host":
            # With several Host fields a proxy may use another one. A trailer has none.
            self._request.hosts += self._request.is_in_head
            if self._request.hosts > 1:
                raise _LimitError
        elif name == b"authorization":
            self._request.authorization = value
        elif name == b"content-length" and value.isdigit() and len(value) <= _LENGTH_DIGITS:
            self._request.length = int(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self._request.expects_continue = True

    def on_headers_complete(self) -> None:
        self._request.is_in_head = False

    def on_chunk_header(self) -> None:
        self._request.chunks += 1
        if self._request.chunks > _MAX_CHUNKS:
            raise _LimitError

    def on_body(self, body: bytes) -> None:
        self._request.received += len(body)
        if self._request.received <= self._limits.body_bytes:
            self._request.body += body
        else:
            self._request.body = bytearray()
        if self._request.received > _DROPPED_BODIES * self._limits.body_bytes and not self.is_ended:
            self._take(is_last=True)
            self.is_ended = True

    def on_message_complete(self) -> None:
        if not self.is_ended:
            self._take(is_last=self._parser.should_upgrade() or not self._parser.should_keep_alive())

    def _count_head(self, length: int) -> None:
        self._request.head_bytes += length
        if self._request.head_bytes > self._limits.head_bytes or self._request.fields > self._limits.fields:
            raise _LimitError

    def _take(self, *, is_last: bool) -> None:
        self.is_in_request = False
        request, self._request = self._request, _Reading()
        self.complete.append(
            Request(
                self._parser.get_method(),
                request.target,
                bytes(request.body),
                request.received > self._limits.body_bytes,
                is_last,
                request.begin,
                request.accept,
                request.authorization,
                self._client,
            )
        )


class _LimitError(Exception):
    """Ends the parsing of a request; the parser wraps it into a HttpParserCallbackError."""
