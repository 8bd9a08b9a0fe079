"""Non-blocking response streams: one thread reads hundreds of long responses and waits for none of them.

Theory of operation. `linestream.py` needs a thread per watch. Of logs there may be hundreds, each with a line now and
then. Here the socket does not block, and its owner calls `read` once a selector reports that bytes have arrived. All
bytes that are there are taken at once, so that the cost follows the bytes.

With TLS each line is a record, since the API server flushes after it, and OpenSSL reads a record from a socket with two
system calls. So TLS works on buffers in memory here, into which everything that has arrived is read at once; that takes
half the time.

Each stream has a connection of its own (HTTP/1.1), opened like any other and closed after the response. Opening it
blocks, up to a limit. Nothing else does: the head of the response, too, is read when it arrives, since the API server
sends that of a log only after the node has answered.

Every failure is an `ApiError`. No message or repr holds a header. Threads: one for a connector and all that it opened.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import urlencode, urlsplit

from urllib3.connection import HTTPConnection

from tfjob_controller.kube.codec import api_error
from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.connectionpool import (
    CONNECT_TIMEOUT_SECONDS,
    Deadline,
    NotConnectedError,
    connect,
    new_connection,
)
from tfjob_controller.kube.http.exchange import ResponseParser, encode_request, feed, no_response_error, send
from tfjob_controller.kube.http.transport import default_user_agent, parse_retry_after
from tfjob_controller.kube.requester import TransportObserver
from tfjob_controller.util.clock import Clock

# Four TLS records: what the parser is given at once.
_BUFFER_BYTES = 65536
# A longer refusal has no more information.
_REFUSAL_BYTES = 65536


class Connector:
    """Opens response streams from one API server with the credentials of `config`."""

    def __init__(
        self, config: Config, clock: Clock, *, user_agent: str = "", observer: TransportObserver | None = None
    ) -> None:
        self._config = config
        self._credentials = config.credentials
        self._clock = clock
        self._observer = observer
        self._user_agent = user_agent or default_user_agent()
        self._host = urlsplit(config.host).netloc
        # Shared by all streams: none keeps anything in it from one read to the next.
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))

    def open(self, path: str, query: Mapping[str, str]) -> ResponseStream:
        """Connect and send the request; only connecting blocks, and the response is read later. Raises ApiError."""
        authorization, begin = self._credentials.authorization(), self._clock.monotonic()
        headers = {"Accept": "text/plain, */*", "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        target = f"{self._config.request_prefix}{path}?{urlencode(query)}"
        acting = self._config.impersonation.headers()
        try:
            opened, receive_into = self._sent(encode_request(self._host, "GET", target, None, headers, acting))
        except OSError as error:
            self.count("<error>", begin)
            raise self.broken(error) from error
        return ResponseStream(opened, receive_into, self, authorization, begin)

    def count(self, code: str, begin: float) -> None:
        """Report one attempt: its response has begun with this status, or there is none."""
        if self._observer is not None:
            self._observer.request_finished("GET", self._host, code, self._clock.monotonic() - begin)

    def broken(self, error: OSError) -> ApiError:
        return no_response_error("GET", self._host, error)

    def refused(self, status: int, headers: Mapping[str, str], body: bytes, authorization: str | None) -> ApiError:
        """The error of a refused request. After a 401 the next `open` has other credentials, if there are any."""
        if status == 401:
            self._credentials.renew(authorization)
        retry_after_seconds = parse_retry_after(headers.get("retry-after"), self._clock.now())
        return api_error(status, body, retry_after_seconds=retry_after_seconds)

    def _sent(self, request: bytes) -> tuple[HTTPConnection, Callable[[memoryview], int]]:
        server, deadline = self._config.server, Deadline(2 * CONNECT_TIMEOUT_SECONDS)
        if server.proxy.startswith("https:"):
            raise NotConnectedError(OSError("logs cannot be followed through an HTTPS proxy"))
        try:
            context = server.tls_context(self._config.certificate) if server.url.startswith("https:") else None
        except OSError as error:
            raise NotConnectedError(error) from error
        connection = new_connection(server, self._config.certificate, with_tls=False)
        connect(connection, deadline)
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            receive_into = connection.sock.recv_into
            if context is not None:
                name = server.name or urlsplit(server.url).hostname or ""
                tls = _MemoryTls(connection.sock, context, name)
                tls.handshake(deadline)
                send(connection.sock, tls.encrypt(request), deadline)
                receive_into = tls.receive_into
            else:
                send(connection.sock, request, deadline)
            connection.sock.settimeout(0.0)
            stack.pop_all()
        return connection, receive_into


class ResponseStream:
    """One response. `has_more`: the last `read` left bytes behind that no selector reports."""

    def __init__(
        self,
        connection: HTTPConnection,
        receive_into: Callable[[memoryview], int],
        connector: Connector,
        authorization: str | None,
        begin: float,
    ) -> None:
        self.has_more = False
        self._connection = connection
        self._receive_into = receive_into
        self._connector = connector
        self._authorization = authorization
        self._begin: float | None = begin
        self._parser = ResponseParser()
        self._refusal = b""
        self._failure: OSError | None = None

    def fileno(self) -> int:
        return self._connection.sock.fileno()

    @property
    def has_begun(self) -> bool:
        """Whether the head of the response has arrived."""
        return self._parser.status > 0

    @property
    def has_ended(self) -> bool:
        """Whether the whole response was read."""
        return self._parser.is_whole

    def read(self, most_bytes: int) -> bytes:
        """The part of the body that arrived since the last call, little more than `most_bytes`; empty if there is none.

        Raises ApiError if the server refused the request, or, after all bytes before it, if the response broke off.
        """
        received, self.has_more = 0, self._failure is None
        while self.has_more and received < most_bytes:
            received += self._receive()
        data, status = self._parser.take(), self._parser.status
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
        """Give the parser the bytes that are there, at most one buffer; returns their number."""
        buffer, filled, count = self._connector.buffer, 0, 1
        try:
            while count and filled < len(buffer):
                count = self._receive_into(buffer[filled:])
                filled += count
        except BlockingIOError:
            self.has_more = False
        except OSError as error:
            self._fail(error)
        # Nothing at all is the connection's end; after some bytes it is seen the next time.
        if filled or not count:
            self._parse(buffer[:filled])
        return filled

    def _parse(self, data: memoryview) -> None:
        try:
            feed(self._parser, data)
        except OSError as error:
            self._fail(error)
        if self._parser.is_whole or not data:
            self.has_more = False

    def _fail(self, error: OSError) -> None:
        self._failure, self.has_more = error, False

    def _refused(self, data: bytes) -> bytes:
        self._refusal += data
        if self._failure is None and not self.has_ended and len(self._refusal) < _REFUSAL_BYTES:
            return b""
        raise self._connector.refused(self._parser.status, self._parser.headers, self._refusal, self._authorization)


class _MemoryTls:
    """TLS over a socket, decrypting in memory. The socket blocks during the handshake only."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        # The annotation does not know that it returns a number if it is given a buffer.
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)

    def handshake(self, deadline: Deadline) -> None:
        """Agree with the server and verify its certificate. Raises NotConnectedError."""
        try:
            while not self._is_agreed():
                send(self._socket, self._outgoing.read(), deadline)
                deadline.arm(self._socket)
                self._fill()
            send(self._socket, self._outgoing.read(), deadline)
        except OSError as error:
            raise NotConnectedError(error) from error

    def encrypt(self, data: bytes) -> bytes:
        """What has to be sent for `data`."""
        self._tls.write(data)
        return self._outgoing.read()

    def receive_into(self, buffer: memoryview) -> int:
        """As a socket's `recv_into`. A socket under TLS would need two system calls for each record."""
        while True:
            try:
                return self._read(len(buffer), buffer)
            except ssl.SSLWantReadError:
                self._fill()
            except ssl.SSLEOFError:
                # Whether that is too early depends on the response.
                return 0
            if self._outgoing.pending:
                self._socket.send(self._outgoing.read())

    def _is_agreed(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _fill(self) -> None:
        data = self._socket.recv(_BUFFER_BYTES)
        self._incoming.write(data) if data else self._incoming.write_eof()
