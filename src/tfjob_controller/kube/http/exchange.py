"""One request and its response over a connection of the pool.

Theory of operation. A controller sends thousands of small requests. http.client takes 0.25 ms of CPU for each, most of
it for headers that are never read; a `send`, a `recv` and a parser in C take a fifth of that. So requests are encoded
here, and responses are parsed by httptools. A client may be installed without it, and then parses in Python
(`pureparser.py`).

The deadline of a call holds for all of it: before each wait the socket's time-out is set to the time that is left. A
connection on which anything failed is closed, as is one whose server requests it or has sent more than the response.

Every failure is an OSError: NotConnectedError, PoolTimeoutError, TimeoutError, BrokenResponseError, or the socket's or
TLS's own. Threads: any. Source: RFC 9112.
"""

from __future__ import annotations

import gzip
import io
import re
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from urllib3.connection import HTTPConnection

from tfjob_controller.kube.errors import NO_RESPONSE, NOT_CONNECTED, PROXY_NOT_CONNECTED, ApiError
from tfjob_controller.kube.http.connectionpool import ConnectionPool, Deadline, NotConnectedError, PoolTimeoutError
from tfjob_controller.kube.http.pureparser import PureParserError, PureResponseParser, ResponseEvents

try:
    import httptools
except ImportError:
    httptools = None  # type: ignore[assignment] # a client has the extra `operator` or not

# TLS records hold 16 KiB; lists are megabytes.
READ_BYTES = 65536
_SEND_BYTES = 65536
# OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_VALIDITY_ERRORS = (9, 10)
# A target that needs no escapes, and has none that are broken.
_PLAIN = re.compile(r"(?:http://[A-Za-z0-9.:\[\]-]+)?/(?:[A-Za-z0-9/._~:?&=@!$'()*+,;-]|%[0-9A-F]{2})*")
_UNESCAPED = "/._~:?&=@!$'()*+,;-"


class _Parser(Protocol):
    """A parser that reports to the `ResponseEvents` that it was made with."""

    def feed_data(self, data: bytes | memoryview) -> None: ...

    def get_status_code(self) -> int: ...

    def should_keep_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ParserLibrary:
    """What parses responses; `errors` are those of `feed_data`."""

    new_parser: Callable[[ResponseEvents], _Parser]
    errors: tuple[type[Exception], ...]


PURE = ParserLibrary(PureResponseParser, (PureParserError,))
LIBRARY = PURE
if httptools is not None:
    LIBRARY = ParserLibrary(httptools.HttpResponseParser, (httptools.HttpParserError, httptools.HttpParserUpgrade))


class BrokenResponseError(ConnectionError):
    """What the server sent is not a complete HTTP response."""


class ResponseTooLargeError(OSError):
    """The body of the response exceeds the bound of the call."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; header names are in lower case. `unread` is the body if it was left on the connection."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    unread: UnreadBody | None = None


@dataclass(frozen=True, slots=True)
class UnreadBody:
    """The rest of a response that is still arriving. Its owner must `release` the connection."""

    pool: ConnectionPool
    connection: HTTPConnection
    parser: ResponseParser

    def release(self, *, is_reusable: bool) -> None:
        self.pool.release(self.connection, is_reusable=is_reusable)


def exchange(
    pool: ConnectionPool, request: bytes, timeout_seconds: float, *, is_stream: bool = False, max_bytes: int = 0
) -> HttpResponse:
    """Send an encoded request over a connection of the pool and receive the response, all within `timeout_seconds`.

    With `is_stream` the body of a 2xx response is left unread. A body of more than `max_bytes`, also one that is
    decompressed, is a ResponseTooLargeError; with 0 it has no bound. Raises OSError.
    """
    deadline = Deadline(timeout_seconds)
    connection = pool.acquire(deadline)
    parser, unread = ResponseParser(), None
    try:
        send(connection.sock, request, deadline)
        while not (parser.is_whole or (is_stream and 200 <= parser.status < 300)):
            deadline.arm(connection.sock)
            feed(parser, connection.sock.recv(READ_BYTES))
            if max_bytes and not is_stream and parser.received > max_bytes:
                # The parsers refer to each other, so they last until the next garbage collection.
                parser.take()
                raise ResponseTooLargeError(f"the response has more than {max_bytes} bytes")
        if is_stream and 200 <= parser.status < 300:
            unread = UnreadBody(pool, connection, parser)
            return HttpResponse(parser.status, parser.headers, b"", unread)
        return parser.response(max_bytes)
    except BaseException:
        parser.is_reusable = False
        raise
    finally:
        if unread is None:
            pool.release(connection, is_reusable=parser.is_reusable)


def encode_request(
    host: str,
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str],
    repeatable: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The bytes of a request; `host` is the header's value. Raises ValueError for an invalid header value.

    `repeatable` is further lines of the header, with names that may occur more than once.
    """
    fields = {"Host": host, **headers}
    if body is not None or method != "GET":
        fields["Content-Length"] = str(len(body or b""))
    pairs = [*fields.items(), *repeatable]
    for name, value in pairs:
        if "\n" in value or "\r" in value:
            raise ValueError(f"the value of the header {name} has more than one line")
    if not _PLAIN.fullmatch(target):
        target = quote(target, safe=_UNESCAPED + "%" * (re.search(r"%(?![0-9A-Fa-f]{2})", target) is None))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def send(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    """Send all of it before the deadline. `sendall` has a limit for each part of it only, with TLS."""
    rest = memoryview(data)
    while rest:
        deadline.arm(connection)
        rest = rest[connection.send(rest[:_SEND_BYTES]) :]


def feed(parser: ResponseParser, data: bytes | memoryview) -> None:
    """Give the parser what was received. Raises BrokenResponseError if it is no HTTP."""
    try:
        parser.feed(data)
    except LIBRARY.errors as error:
        raise BrokenResponseError(f"not an HTTP response: {error}") from error


class ResponseParser:
    """One response as it arrives; the parser of the library calls the `on_` methods."""

    def __init__(self) -> None:
        self.is_whole = False
        self.is_reusable = False
        self._parser = LIBRARY.new_parser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._is_in_body = False
        self.received = 0
        """Bytes of the body."""

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes; none are the connection's end. Raises BrokenResponseError if that is too early."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except LIBRARY.errors:
            # Bytes after a complete response do not belong to it.
            if not self.is_whole:
                raise
            self.is_reusable = False

    @property
    def status(self) -> int:
        """0 until the head is complete."""
        return self._status if self._is_in_body else 0

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    def take(self) -> bytes:
        """The part of the body that has arrived since the last call."""
        data = b"".join(self._body)
        self._body.clear()
        return data

    def response(self, max_bytes: int = 0) -> HttpResponse:
        """The whole response. Raises BrokenResponseError if its body cannot be decompressed."""
        data = self.take()
        if self._headers.get("content-encoding", "identity") == "gzip":
            try:
                data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(max_bytes + 1 if max_bytes else -1)
            except (OSError, EOFError, zlib.error) as error:
                raise BrokenResponseError(f"the body cannot be decompressed: {error}") from error
            if max_bytes and len(data) > max_bytes:
                raise ResponseTooLargeError(f"the response has more than {max_bytes} bytes")
        return HttpResponse(self._status, self._headers, data)

    def on_message_begin(self) -> None:
        if self.is_whole:
            # A response without a request. The error ends the parser.
            raise BrokenResponseError("more than one response")
        self._headers.clear()
        self._is_in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # Several warnings are several headers; of other headers the last one counts.
        self._headers[key] = f"{self._headers[key]}, {text}" if key == "warning" and key in self._headers else text

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self.received += len(body)

    def on_message_complete(self) -> None:
        # 1xx responses are interim.
        self.is_whole = self._is_in_body = self._status >= 200
        self.is_reusable = self.is_whole and self._parser.should_keep_alive()

    def _end(self) -> None:
        """A response without a length ends with its connection."""
        if not self._is_in_body or self._headers.keys() & {"content-length", "transfer-encoding"}:
            raise BrokenResponseError("the connection was closed before the whole response came")
        self.is_whole = True


def no_response_error(method: str, host: str, error: OSError) -> ApiError:
    """The error of a call without a complete response: it may have been carried out unless it was never sent."""
    if isinstance(error, PoolTimeoutError):
        reason, what = "PoolTimeout", "no connection became free in time"
    elif isinstance(error, NotConnectedError):
        reason = PROXY_NOT_CONNECTED if error.proxy else NOT_CONNECTED
        through = f" through the proxy {error.proxy}" if error.proxy else ""
        what = f"cannot connect{through}: {_root(error)}"
    elif isinstance(error, TimeoutError):
        reason, what = "Timeout", "no answer in time"
    else:
        reason, what = "ConnectionBroken", f"the connection broke: {_root(error)}"
    is_unknown = method != "GET" and reason not in ("PoolTimeout", NOT_CONNECTED, PROXY_NOT_CONNECTED)
    return ApiError(NO_RESPONSE, reason, f"{host}: {what}", outcome_unknown=is_unknown)


def _root(error: BaseException) -> str:
    """The message of the operating system or of TLS, which urllib3 wraps once or twice."""
    while True:
        inner = next((arg for arg in reversed(error.args) if isinstance(arg, BaseException)), None) or error.__cause__
        if inner is None:
            break
        error = inner
    clock = "; check the clock of this machine" if getattr(error, "verify_code", 0) in _VALIDITY_ERRORS else ""
    return (" ".join(str(error).split()) or type(error).__name__) + clock
