"""Answers as bytes, whatever pieces they come in, and requests on connections that are open."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import ProtocolError
from urllib3.util import Timeout

from tfjob_controller.kube.exchange import exchange, read_answer

SECONDS = Timeout(connect=5.0, read=5.0)


def pieces(data: bytes, size: int) -> Any:
    """A `recv` that gives so many bytes at a time, then the end."""
    parts = [data[begin : begin + size] for begin in range(0, len(data), size)]
    return lambda _: parts.pop(0) if parts else b""


PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nRetry-After: 3\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
PACKED = gzip.compress(b"hello")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 65536])
@pytest.mark.parametrize(
    ("data", "status", "keep"),
    [
        pytest.param(PLAIN, 201, True, id="a length"),
        pytest.param(CHUNKED, 200, True, id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", 200, False, id="the end of the connection"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, False, id="HTTP 1.0"),
        pytest.param(b"HTTP/1.1 409\r\ncontent-length:5\r\n\r\nhello", 409, True, id="no reason, small letters"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nhello", 200, False, id="close"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 201, True, id="an interim answer before"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
            200,
            True,
            id="gzip",
        ),
    ],
)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(data: bytes, status: int, keep: bool, size: int) -> None:
    answer, kept = read_answer(pieces(data, size))
    assert (answer.status, answer.data, kept) == (status, b"hello", keep)


def test_headers_are_found_by_their_names_in_small_letters() -> None:
    answer, _ = read_answer(pieces(PLAIN, 9))
    assert answer.headers["retry-after"] == "3"


def test_no_content_has_no_body() -> None:
    answer, keep = read_answer(pieces(b"HTTP/1.1 204 No Content\r\n\r\n", 5))
    assert (answer.data, keep) == (b"", True)


def test_a_connection_that_has_said_more_than_it_was_asked_is_not_used_again() -> None:
    answer, keep = read_answer(pieces(PLAIN + b"HTTP/1.1 200 OK", 65536))
    assert (answer.data, keep) == (b"hello", False)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-", id="ends in its headers"),
        pytest.param(PLAIN[:-1], id="ends in its body"),
        pytest.param(CHUNKED[:-3], id="ends in its chunks"),
        pytest.param(b"SSH-2.0-x\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", id="a length below zero"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", id="an unknown coding"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n", id="odd digits"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi!!0\r\n\r\n", id="a long chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi", id="no gzip"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, id="headers without end"),
    ],
)
def test_what_is_no_answer_or_not_all_of_one_is_a_broken_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_answer(pieces(data, 4096))


@contextmanager
def pool_to(*answers: bytes) -> Iterator[tuple[urllib3.HTTPConnectionPool, list[bytes]]]:
    """A pool with one connection to a server that reads a request and answers, for each answer; then it closes."""
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.settimeout(5)
        with connection:
            for answer in answers:
                received.append(connection.recv(65536))
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    with urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1, block=True, retries=False) as pool:
        yield pool, received
    thread.join(5)
    listener.close()


def test_urllib3_opens_the_connection_and_the_exchange_uses_it() -> None:
    with pool_to(PLAIN, PLAIN) as (pool, received):
        assert exchange(pool, "GET", "/a", {}, None, SECONDS) is None
        pool.request("GET", "/a")
        answer = exchange(pool, "POST", "/b?c=d", {"Accept": "e"}, b"{}", SECONDS)
        assert answer is not None
        assert answer.data == b"hello"
        assert pool.num_connections == 1
    host = f"Host: 127.0.0.1:{pool.port}".encode()
    assert received[1] == b"POST /b?c=d HTTP/1.1\r\n%b\r\nAccept: e\r\nContent-Length: 2\r\n\r\n{}" % host


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä", "http://other/a", '/a"b', ""])
def test_a_target_that_has_to_be_quoted_is_left_to_urllib3(target: str) -> None:
    with pool_to(PLAIN) as (pool, received):
        pool.request("GET", "/a")
        assert exchange(pool, "GET", target, {}, None, SECONDS) is None
    assert len(received) == 1


def test_a_header_with_a_line_break_is_refused_without_saying_what_it_holds() -> None:
    with pool_to(PLAIN) as (pool, _):
        pool.request("GET", "/a")
        with pytest.raises(ValueError, match="line break") as raised:
            exchange(pool, "GET", "/a", {"Authorization": "Bearer secret\r\nX: y"}, None, SECONDS)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", ProtocolError), (b"nonsense\r\n\r\n", ProtocolError)],
    ids=["broken off", "no HTTP"],
)
def test_a_connection_on_which_something_went_wrong_is_closed(answer: bytes, error: type[Exception]) -> None:
    with pool_to(PLAIN, answer) as (pool, _):
        pool.request("GET", "/a")
        with pytest.raises(error):
            exchange(pool, "GET", "/a", {}, None, SECONDS)
        # The pool has room for a connection, and none that is open.
        assert exchange(pool, "GET", "/a", {}, None, SECONDS) is None


def test_a_server_that_does_not_answer_is_left_after_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = urllib3.HTTPConnectionPool("127.0.0.1", silent.getsockname()[1], maxsize=1, block=True)
        connection = pool._get_conn()
        connection.connect()
        pool._put_conn(connection)
        with pytest.raises(TimeoutError):
            exchange(pool, "GET", "/a", {}, None, Timeout(connect=1.0, read=0.05))
        pool.close()
