"""The interface between a server and its application: requests, replies, and the limits of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"

# Takes the certificate of a client, as `ssl.SSLSocket.getpeercert` returns it, and returns why its requests are
# refused; an empty text if they are not.
PeerCheck = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class RequestRate:
    """The rate of one address: `burst` connections or half as many requests at once, then `per_second` of both."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server grants its clients."""

    connections: int
    body_bytes: int
    replaces_busy: bool
    """Whether a new connection may replace one whose request is being answered."""
    rate: RequestRate | None
    """None where only trusted clients send requests."""
    handshakes: RequestRate | None = None
    """The rate of TLS handshakes of all addresses together; None where trusted clients may need many at once."""
    head_bytes: int = 16 * 1024
    """Request line and header fields; a trailer counts as well."""
    pipelined_bytes: int = 1024
    """What is read after the body of a request, and parsed at once: some fifty of the shortest requests."""
    fields: int = 30
    handshake_seconds: float = 5.0
    request_seconds: float = 10.0
    """From the first byte of a request to its last."""
    response_seconds: float = 30.0
    """For the client to read a response."""
    # Longer than Go's client keeps an idle connection (90 s), so that the client never uses one that was just closed.
    idle_seconds: float = 120.0
    """From a response, or from the accepted connection, to the next request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request. `target` is as sent; `begin` is on the event loop's clock."""

    method: bytes
    target: bytes
    body: bytes
    is_too_long: bool
    is_last: bool
    """The connection is closed after it."""
    begin: float
    accept: bytes = b""
    """The Accept header."""
    authorization: bytes = field(default=b"", repr=False)
    """The Authorization header, which is a secret."""
    client: str = ""
    """The address of the client, without its port."""


# Takes status, body and media type. Called once, now or later.
Reply = Callable[[int, bytes, bytes], None]
App = Callable[[Request, Reply], None]
