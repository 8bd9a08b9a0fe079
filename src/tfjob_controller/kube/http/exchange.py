"""One request and its whole answer over a connection of urllib3's pool, without the rest of urllib3.

Theory of operation. Most requests of this program are small, and there are thousands of them. urllib3 and http.client
take 0.25 ms of CPU for each, most of it for headers that nobody reads; a `sendall`, a `recv` and a parser in C take a
fifth of that. So urllib3 opens connections (TLS, certificates, time-outs, kernel options) and keeps them, and what goes
over them is written and read here. It does what is done for any other request too, and more slowly, where that is not
so simple: through a proxy, and for a target with characters that have to be escaped (`can_send`).

Errors are those that urllib3 would raise: its HTTPError, or an OSError. A connection on which one was met is closed, as
is one whose server says so, or that has sent more than the answer.

Threads: any; a connection is one thread's at a time. Source: RFC 9112, urllib3's HTTPConnectionPool.urlopen.
"""

from __future__ import annotations

import gzip
import re
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import httptools
import urllib3
from urllib3.connection import HTTPConnection

from tfjob_controller.kube.errors import NO_RESPONSE, ApiError

# TLS records hold 16 KiB; lists are megabytes.
_READ_BYTES = 65536
# A target that needs no escapes, and has none that are broken.
_PLAIN = re.compile(r"/(?:[A-Za-z0-9/._~:?&=@!$'()*+,;-]|%[0-9A-F]{2})*")
# Failures before anything was sent.
_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
    urllib3.exceptions.EmptyPoolError,
    urllib3.exceptions.ClosedPoolError,
)
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def can_send(pool: urllib3.HTTPConnectionPool, method: str, target: str) -> bool:
    """Whether `exchange` is for this request."""
    return pool.proxy is None and method in _METHODS and _PLAIN.fullmatch(target) is not None


def exchange(
    pool: urllib3.HTTPConnectionPool,
    host: str,
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    connect_timeout_seconds: float,
    timeout_seconds: float,
) -> HttpResponse:
    """Send it over a free connection; wait for one, and for each part of the answer, no longer than `timeout_seconds`.

    `host` is for the header. Raises urllib3's HTTPError, OSError, and ValueError for a header that is none.
    """
    request = request_bytes(host, method, target, body, headers)
    # What urllib3's own `urlopen` calls; there is no public way to a connection.
    connection = cast("HTTPConnection", pool._get_conn(timeout=timeout_seconds))
    is_reusable = False
    try:
        connect(pool, connection, connect_timeout_seconds)
        answer, is_reusable = _round_trip(connection.sock, request, timeout_seconds)
    finally:
        if not is_reusable:
            connection.close()
        pool._put_conn(connection)
    return answer


def request_bytes(host: str, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """What is sent. Raises ValueError for a header that is none."""
    fields = {"Host": host, **headers}
    if body is not None or method != "GET":
        fields["Content-Length"] = str(len(body or b""))
    for name, value in fields.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"the value of the header {name} has more than one line")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def connect(pool: urllib3.HTTPConnectionPool, connection: HTTPConnection, timeout_seconds: float) -> None:
    """Where it is not connected yet, or not any more."""
    if not connection.is_closed:
        return
    connection.timeout = timeout_seconds
    try:
        if pool.proxy is not None:
            # To the server behind it, where that speaks TLS.
            pool._prepare_proxy(connection)
        # Connects, and looks at certificates, if it is one with TLS.
        pool._validate_conn(connection)
        if connection.is_closed:
            connection.connect()
    except ssl.SSLError as error:
        raise urllib3.exceptions.SSLError(error) from error


def _round_trip(connection: socket.socket, request: bytes, timeout_seconds: float) -> tuple[HttpResponse, bool]:
    """The answer, and whether the connection can be used again."""
    connection.settimeout(timeout_seconds)
    reader = ResponseParser()
    try:
        connection.sendall(request)
        while not reader.is_whole:
            reader.feed(connection.recv(_READ_BYTES))
    except ssl.SSLError as error:
        raise urllib3.exceptions.SSLError(error) from error
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise urllib3.exceptions.ProtocolError(f"no HTTP answer: {error}") from error
    return reader.answer(), reader.is_reusable


class ResponseParser:
    """One answer as it comes; the parser calls the `on_` methods."""

    def __init__(self) -> None:
        self.is_whole = False
        self.is_reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._is_in_body = False

    def feed(self, data: bytes | memoryview) -> None:
        """No bytes are the end of the connection. Raises urllib3's ProtocolError if that is too early."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            # What follows a whole answer is not of it.
            if not self.is_whole:
                raise
            self.is_reusable = False

    @property
    def status(self) -> int:
        """0 until the head is there."""
        return self._status if self._is_in_body else 0

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    def take(self) -> bytes:
        """What has come of the body since the last time, for one that is read bit by bit."""
        data = b"".join(self._body)
        self._body.clear()
        return data

    def answer(self) -> HttpResponse:
        data = b"".join(self._body)
        if self._headers.get("content-encoding", "identity") == "gzip":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise urllib3.exceptions.DecodeError(f"the answer cannot be decompressed: {error}") from error
        return HttpResponse(self._status, self._headers, data)

    def on_message_begin(self) -> None:
        if self.is_whole:
            # A second answer, to nothing. The error ends the parser.
            raise urllib3.exceptions.ProtocolError("more than one answer")
        self._headers.clear()
        self._is_in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        # What begins with 1 is only a word in between.
        self.is_whole = self._is_in_body = self._status >= 200
        self.is_reusable = self.is_whole and self._parser.should_keep_alive()

    def _end(self) -> None:
        """An answer that says nothing of its length ends with its connection."""
        if not self._is_in_body or self._headers.keys() & {"content-length", "transfer-encoding"}:
            raise urllib3.exceptions.ProtocolError("the connection was closed before the whole answer came")
        self.is_whole = True


def no_response_error(method: str, host: str, error: Exception) -> ApiError:
    """No answer, or not all of one: the request may have been carried out unless it never left."""
    if isinstance(error, urllib3.exceptions.EmptyPoolError):
        reason, what = "PoolTimeout", "no connection became free in time"
    elif isinstance(error, _NOT_SENT) or _is_certificate_refused(error):
        reason, what = "NotConnected", f"cannot connect: {_root(error)}"
    elif isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError)):
        reason, what = "Timeout", "no answer in time"
    else:
        reason, what = "ConnectionBroken", f"the connection broke: {_root(error)}"
    unknown = method != "GET" and reason not in ("PoolTimeout", "NotConnected")
    return ApiError(NO_RESPONSE, reason, f"{host}: {what}", outcome_unknown=unknown)


def _is_certificate_refused(error: Exception) -> bool:
    return isinstance(error, urllib3.exceptions.SSLError) and isinstance(
        error.args[0] if error.args else None, ssl.SSLCertVerificationError
    )


def _root(error: BaseException) -> str:
    """The operating system's or TLS's own words, which urllib3 wraps once or twice."""
    while True:
        inner = next((arg for arg in reversed(error.args) if isinstance(arg, BaseException)), None) or error.__cause__
        if inner is None:
            break
        error = inner
    return " ".join(str(error).split()) or type(error).__name__
