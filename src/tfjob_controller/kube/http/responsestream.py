"""Long answers that one thread reads by the hundred, whenever it looks, without waiting for any.

Theory of operation. stream.py gives each watch a thread that waits in `recv`. Of logs there may be hundreds, each with
a word now and then: here the answer's socket does not block, and its owner asks `read` for what has come, once a
selector has told it to. What is there is taken in one go, so that what it costs follows the bytes.

With TLS each line is a record, since the API server flushes after it; OpenSSL reads a record from a socket with two
system calls. So here it has no socket: what has come is read at once and put before it in memory, which takes half the
time.

Each has a connection of its own (HTTP/1.1), made as any other's: TLS settings, proxy, client certificate and the
kernel's keep-alive probes; it is closed after the answer. Connecting waits, up to a limit; nothing after that does: the
head of the answer, too, is read when it comes, for the API server sends that of a log once the node has answered.

Every failure is an `ApiError`. No message or repr holds a header.
Threads: one for a connector and all that it has opened.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import urlencode, urlsplit

import httptools
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs
from urllib3.util.ssltransport import SSLTransport

from tfjob_controller.kube.codec import api_error
from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.exchange import ResponseParser, connect, no_response_error, request_bytes
from tfjob_controller.kube.http.retrypolicy import parse_retry_after
from tfjob_controller.kube.http.transport import CONNECT_TIMEOUT_SECONDS, default_user_agent
from tfjob_controller.kube.requester import RequestObserver
from tfjob_controller.util.clock import Clock

# Four TLS records: what the parser is given at once.
_BUFFER_BYTES = 65536
# A refusal that is longer says nothing more.
_REFUSAL_BYTES = 65536
_BROKEN = (OSError, urllib3.exceptions.HTTPError, httptools.HttpParserError, httptools.HttpParserUpgrade)


class Connector:
    """Opens answers of one API server, with the identity that `config` has there."""

    def __init__(
        self, config: Config, clock: Clock, *, user_agent: str = "", observer: RequestObserver | None = None
    ) -> None:
        self._config = config
        self._credentials = config.credentials
        self._clock = clock
        self._observer = observer
        self._user_agent = user_agent or default_user_agent()
        url = urlsplit(config.host)
        self._host = url.netloc
        self._pool, self._generation = config.open_pool(1, block=False), self._credentials.certificate_generation
        # A proxy forwards plain HTTP only if it is told the whole URL; TLS goes through a tunnel.
        self._prefix = config.host if self._pool.proxy is not None and url.scheme == "http" else url.path
        # Of all that are open: none keeps anything in it from one read to the next.
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))

    def open(self, path: str, query: Mapping[str, str]) -> ResponseStream:
        """Connect and send; the answer, if there comes one, is read later. Waits for the connection alone.

        Raises ApiError if there is none.
        """
        authorization, begin = self._credentials.authorization(), self._clock.monotonic()
        headers = {"Accept": "text/plain, */*", "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        target = f"{self._prefix}{path}?{urlencode(query)}"
        try:
            opened = self._sent(request_bytes(self._host, "GET", target, None, headers))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.count("<error>", begin)
            raise self.broken(error) from error
        return ResponseStream(opened, self, authorization, begin)

    def close(self) -> None:
        self._pool.close()

    def count(self, code: str, begin: float) -> None:
        """One attempt is over: an answer has begun with this status, or there is none."""
        if self._observer is not None:
            self._observer.request_finished("GET", self._host, code, self._clock.monotonic() - begin)

    def broken(self, error: Exception) -> ApiError:
        return no_response_error("GET", self._host, error)

    def refused(self, status: int, headers: Mapping[str, str], body: bytes, authorization: str | None) -> ApiError:
        """What a refusal says. After a 401 the next `open` has other credentials, if there are any."""
        if status == 401:
            self._credentials.renew(authorization)
        retry_after_seconds = parse_retry_after(headers.get("retry-after"), self._clock.now())
        return api_error(status, body, retry_after_seconds=retry_after_seconds)

    def _sent(self, request: bytes) -> HTTPConnection:
        if self._generation != self._credentials.certificate_generation:
            self._pool.close()
            self._pool, self._generation = (
                self._config.open_pool(1, block=False),
                self._credentials.certificate_generation,
            )
        # The factory alone is wanted of the pool: nothing is ever put back.
        connection = cast("HTTPConnection", self._pool._new_conn())
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            if isinstance(connection, HTTPSConnection):
                _read_in_memory(connection)
            connect(self._pool, connection, CONNECT_TIMEOUT_SECONDS)
            connection.sock.settimeout(CONNECT_TIMEOUT_SECONDS)
            connection.sock.sendall(request)
            connection.sock.settimeout(0.0)
            stack.pop_all()
        return connection


class ResponseStream:
    """One answer. `has_more`: the last `read` has left something there, of which no selector need tell."""

    def __init__(
        self, connection: HTTPConnection, connector: Connector, authorization: str | None, begin: float
    ) -> None:
        self.has_more = False
        self._connection = connection
        self._socket: socket.socket | SSLTransport = connection.sock
        self._receive_into = _receive_into(connection.sock)
        self._connector = connector
        self._authorization = authorization
        self._begin: float | None = begin
        self._reader = ResponseParser()
        self._refusal = b""
        self._failure: Exception | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_begun(self) -> bool:
        """Is the answer's head there?"""
        return self._reader.status > 0

    @property
    def has_ended(self) -> bool:
        """The whole answer was read."""
        return self._reader.is_whole

    def read(self, most_bytes: int) -> bytes:
        """What has come of the body since the last time, little more than `most_bytes`; none if nothing has.

        Raises ApiError where the answer is a refusal, or where it broke off: once all that came before was read.
        """
        received, self.has_more = 0, self._failure is None
        while self.has_more and received < most_bytes:
            received += self._receive()
        data, status = self._reader.take(), self._reader.status
        if self._begin is not None and (status or self._failure is not None):
            self._connector.count(str(status or "<error>"), self._begin)
            self._begin = None
        if status >= 300:
            return self._refused(data)
        if self._failure is None:
            return data
        if not data:
            raise self._connector.broken(self._failure) from self._failure
        self.has_more = True
        return data

    def close(self) -> None:
        """Any number of times."""
        self._connection.close()

    def _receive(self) -> int:
        """Give the parser what is there, as far as the buffer holds it. How many bytes that was."""
        buffer, filled, count = self._connector.buffer, 0, 1
        try:
            while count and filled < len(buffer):
                count = self._receive_into(buffer[filled:])
                filled += count
        except BlockingIOError:
            self.has_more = False
        except _BROKEN as error:
            self._fail(error)
        # Nothing at all is the connection's end; after some bytes it is seen the next time.
        if filled or not count:
            self._parse(buffer[:filled])
        return filled

    def _parse(self, data: memoryview) -> None:
        try:
            self._reader.feed(data)
        except _BROKEN as error:
            self._fail(error)
        if self._reader.is_whole or not data:
            self.has_more = False

    def _fail(self, error: Exception) -> None:
        self._failure, self.has_more = error, False

    def _refused(self, data: bytes) -> bytes:
        self._refusal += data
        if self._failure is None and not self.has_ended and len(self._refusal) < _REFUSAL_BYTES:
            return b""
        raise self._connector.refused(self._reader.status, self._reader.headers, self._refusal, self._authorization)


def _read_in_memory(connection: HTTPSConnection) -> None:
    """Have it connect as ever, with the same checks, but keep its socket to itself (an `SSLTransport`)."""
    context = create_urllib3_context(cert_reqs=resolve_cert_reqs(connection.cert_reqs))
    if not (connection.ca_certs or connection.ca_cert_dir or connection.ca_cert_data):
        # urllib3 does so with a context of its own.
        context.load_default_certs()

    def wrap_socket(plain: socket.socket, server_hostname: str | None = None) -> SSLTransport:
        return SSLTransport(plain, context, server_hostname)

    # urllib3 asks the context for a socket; for this kind of one it has a switch, but for TLS to a proxy alone.
    context.wrap_socket = wrap_socket  # type: ignore[method-assign,assignment]  # of this one context, not of all
    connection.ssl_context = context


def _receive_into(connection: socket.socket | SSLTransport) -> Callable[[memoryview], int]:
    """The connection's `recv_into`; its own would look after each record whether there is something to send."""
    if not isinstance(connection, SSLTransport):
        return connection.recv_into
    tls, plain, incoming, outgoing = connection.sslobj, connection.socket, connection.incoming, connection.outgoing
    # Its annotation does not know that it counts where it is given a buffer.
    read = cast("Callable[[int, memoryview], int]", tls.read)

    def receive_into(buffer: memoryview) -> int:
        while True:
            try:
                return read(len(buffer), buffer)
            except ssl.SSLWantReadError:
                data = plain.recv(_BUFFER_BYTES)
                incoming.write(data) if data else incoming.write_eof()
            except ssl.SSLEOFError:
                # Whether that was too early, the answer says.
                return 0
            if outgoing.pending:
                plain.send(outgoing.read())

    return receive_into
