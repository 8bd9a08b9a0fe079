"""The rules of kube/http/exchange.py, against a server that sends just the bytes that it is told to.

What is read has the same meaning with both parsers: httptools, and the one in Python where that is not installed.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from helpers.apiconfig import config_for
from helpers.poll import eventually
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.overrides import Impersonation
from tfjob_controller.kube.http import exchange as exchange_module
from tfjob_controller.kube.http.connectionpool import ConnectionPool
from tfjob_controller.kube.http.exchange import (
    LIBRARY,
    PURE,
    BrokenResponseError,
    HttpResponse,
    encode_request,
    exchange,
)

WAIT_SECONDS = 60.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PRELUDE = b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LIBRARY is not PURE
    if request.param == "h11":
        monkeypatch.setattr(exchange_module, "LIBRARY", PURE)


with_both_parsers = pytest.mark.usefixtures("parser")


class ClientGoneError(Exception):
    """Before it has sent a request."""


@dataclass
class Server:
    """To each request the next bytes; then the connection is closed if there is no further one for it.

    With `rest_seconds` it sends one byte at a time, with such a rest before each.
    """

    connections: list[list[bytes]]
    rest_seconds: float = 0.0
    seen: list[bytes] = field(default_factory=list)
    closed: int = 0

    def __enter__(self) -> Server:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        # Wakes a thread that waits for a connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_SECONDS)
        self._listener.close()

    @property
    def pool(self) -> ConnectionPool:
        host, port = self._listener.getsockname()
        return ConnectionPool(config_for(f"http://{host}:{port}"), 1, block=True)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            for answers in self.connections:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(ClientGoneError):
                    for answer in answers:
                        self.seen.append(_request(connection))
                        self._send(connection, answer)
                self.closed += 1

    def _send(self, connection: socket.socket, answer: bytes) -> None:
        if not self.rest_seconds:
            connection.sendall(answer)
            return
        for byte in answer:
            if self._is_over.wait(self.rest_seconds):
                return
            connection.sendall(bytes([byte]))


def _request(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"end"):
        if not (received := connection.recv(65536)):
            raise ClientGoneError
        data += received
    return data


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(*connections: list[bytes]) -> Server:
        servers.append(Server(list(connections)).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


def send(pool: ConnectionPool, headers: dict[str, str] | None = None, host: str = "x:1") -> HttpResponse:
    return exchange(pool, encode_request(host, "POST", "/a?b=c", b"end", headers or {}), WAIT_SECONDS)


@with_both_parsers
@pytest.mark.parametrize(
    ("sent", "status", "data"),
    [
        pytest.param(OK, 200, b"{}", id="with a length"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="without a body"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nyes", 404, b"yes", id="a refusal"),
        pytest.param(CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, b"abcde", id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end", id="as long as the connection"),
        pytest.param(PRELUDE + b"HTTP/1.1 103 Early\r\n\r\n" + OK, 200, b"{}", id="with a prelude"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b"x" * 999),
            200,
            b"x" * 999,
            id="compressed",
        ),
    ],
)
def test_an_answer_is_read_to_its_end(serve: Serve, sent: bytes, status: int, data: bytes) -> None:
    answer = send(serve([sent]).pool)
    assert (answer.status, answer.data) == (status, data)
    assert "a" not in answer.headers


def test_what_is_sent(serve: Serve) -> None:
    server = serve([OK])
    send(server.pool, {"Accept": "x/y"}, host="[::1]:6443")
    assert server.seen == [b"POST /a?b=c HTTP/1.1\r\nHost: [::1]:6443\r\nAccept: x/y\r\nContent-Length: 3\r\n\r\nend"]


@with_both_parsers
def test_header_names_are_returned_in_lower_case(serve: Serve) -> None:
    sent = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    assert send(serve([sent]).pool).headers["retry-after"] == "7"


@with_both_parsers
def test_of_several_warnings_each_is_returned(serve: Serve) -> None:
    sent = b'HTTP/1.1 200 OK\r\nWarning: 299 - "a"\r\nwarning: 299 - "b"\r\nContent-Length: 0\r\n\r\n'
    assert send(serve([sent]).pool).headers["warning"] == '299 - "a", 299 - "b"'


@with_both_parsers
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", id="the server says so"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="HTTP/1.0"),
        pytest.param(OK + OK, id="two answers"),
        pytest.param(OK + b"junk", id="junk after the answer"),
    ],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(serve: Serve, first: bytes) -> None:
    pool = serve([first, OK.replace(b"{}", b"no")], [OK.replace(b"{}", b"[]")]).pool
    assert [send(pool).data for _ in range(2)] == [b"{}", b"[]"]


@with_both_parsers
@pytest.mark.parametrize("first", [b"SSH-2.0-OpenSSH\r\n\r\n", OK.replace(b"OK", b"OK\r\nContent-Encoding: gzip")])
def test_nor_is_one_that_has_sent_nonsense(serve: Serve, first: bytes) -> None:
    pool = serve([first, OK.replace(b"{}", b"no")], [OK]).pool
    with pytest.raises(BrokenResponseError):
        send(pool)
    assert send(pool).data == b"{}"


def test_any_other_is(serve: Serve) -> None:
    pool = serve([OK, OK, OK]).pool
    assert [send(pool).status for _ in range(3)] == [200, 200, 200]


def test_one_that_the_server_has_closed_meanwhile_is_opened_again(serve: Serve) -> None:
    server = serve([OK], [OK])
    pool = server.pool
    assert send(pool).status == 200
    eventually(lambda: server.closed == 1)
    assert send(pool).status == 200


@with_both_parsers
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="half a head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", id="too few bytes"),
        pytest.param(CHUNKED + b"3\r\nabc\r\n", id="too few chunks"),
        pytest.param(PRELUDE, id="only a prelude"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_whole_answer_is_an_error_and_ends_the_connection(serve: Serve, sent: bytes) -> None:
    pool = serve([sent], [OK]).pool
    with pytest.raises(BrokenResponseError):
        send(pool)
    assert send(pool).data == b"{}"


def test_a_header_of_two_lines_is_never_sent(serve: Serve) -> None:
    server = serve([OK])
    with pytest.raises(ValueError, match="more than one line"):
        send(server.pool, {"Authorization": "Bearer x\r\nX-Remote-User: admin"})
    assert send(server.pool).status == 200
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/api/v1/pods?labelSelector=a%3Db%2Cc&limit=500", "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=500"),
        ("/api/v1/namespaces/a b", "/api/v1/namespaces/a%20b"),
        ("/api/v1/namespaces/a\r\nX: y", "/api/v1/namespaces/a%0D%0AX:%20y"),
        ("/api/v1/namespaces/ä%20", "/api/v1/namespaces/%C3%A4%20"),
        ("/api/v1/namespaces/100%", "/api/v1/namespaces/100%25"),
        ("/api#x", "/api%23x"),
        ("http://elsewhere:80/api?a=1", "http://elsewhere:80/api?a=1"),
    ],
)
def test_characters_that_no_target_may_have_are_escaped(target: str, sent: str) -> None:
    assert encode_request("x", "GET", target, None, {}).split(b"\r\n")[0] == f"GET {sent} HTTP/1.1".encode()


def test_a_header_may_have_several_lines_as_that_of_impersonated_groups() -> None:
    acting = Impersonation("bé", "7", ("a", "b")).headers()
    lines = encode_request("x", "GET", "/", None, {"Accept": "*/*"}, acting).split(b"\r\n")
    assert lines[3:-2] == [
        "Impersonate-User: bé".encode(),
        b"Impersonate-Uid: 7",
        b"Impersonate-Group: a",
        b"Impersonate-Group: b",
    ]
    with pytest.raises(KubeconfigError, match="a character that no header may have"):
        Impersonation("a\r\nAuthorization: b").headers()


LONG = b"x" * 100_000


@pytest.mark.parametrize(
    ("answer", "is_stream"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: " + LONG, False, id="head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: " + LONG, True, id="head of a stream"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + LONG, False, id="body"),
        # The head of a success is all that opening a stream waits for.
        pytest.param(b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n" + LONG, True, id="body of a refused stream"),
        pytest.param(PRELUDE * 10_000, False, id="interim responses"),
    ],
)
def test_a_server_that_sends_a_byte_now_and_then_holds_nobody_longer_than_the_deadline(
    answer: bytes, is_stream: bool
) -> None:
    with Server([[answer]], rest_seconds=0.02) as server:
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            exchange(server.pool, encode_request("x", "POST", "/a", b"end", {}), 0.5, is_stream=is_stream)
        # The server would go on for more than half an hour.
        assert time.monotonic() - begin < WAIT_SECONDS / 2


def test_a_server_that_reads_nothing_holds_nobody_longer_than_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        pool = ConnectionPool(config_for(url), 1, block=True)
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            exchange(pool, encode_request("x", "POST", "/a", b"x" * 50_000_000, {}), 0.3)
        assert time.monotonic() - begin < WAIT_SECONDS / 2
