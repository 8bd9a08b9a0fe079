"""The rules of kube/http/linestream.py that need no server. The rest is in test_transport.py."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.apiconfig import config_for
from helpers.httpserver import Answer, HttpServer
from tfjob_controller.kube.http.connectionpool import ConnectionPool
from tfjob_controller.kube.http.exchange import UnreadBody, encode_request, exchange
from tfjob_controller.kube.http.linestream import HttpLineStream, split_lines


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([b"a", b"b", b"c\nd", b"e\n"], [b"abc", b"de"], id="a line over several pieces"),
        pytest.param([b"a\nb"], [b"a", b"b"], id="a last line without its end"),
    ],
)
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes], expected: list[bytes]) -> None:
    assert list(split_lines(pieces)) == expected


@given(
    text=st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"x")), max_size=8),
    limit=st.sampled_from([4, 100]),
    data=st.data(),
)
def test_any_cut_gives_the_same_lines_and_of_long_ones_the_same_beginnings(
    text: list[bytes], limit: int, data: st.DataObject
) -> None:
    body = b"".join(line + b"\n" for line in text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert list(split_lines(pieces, limit)) == [line[:limit] for line in text]


def test_little_is_kept_of_a_line_that_does_not_end() -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            yield bytes(10_000)
            assert tracemalloc.get_traced_memory()[1] < 100_000

    tracemalloc.start()
    try:
        assert list(split_lines(pieces(), 20_000)) == [bytes(20_000)]
    finally:
        tracemalloc.stop()


@pytest.fixture
def body() -> Iterator[UnreadBody]:
    with HttpServer(lambda _: Answer(chunks=[b"a\nb\n", b"c\n"])) as server:
        pool = ConnectionPool(config_for(server.url), 1, block=True)
        response = exchange(pool, encode_request("x", "GET", "/", None, {}), 60.0, is_stream=True)
        assert response.unread is not None
        yield response.unread
        pool.close()


def test_after_close_there_are_no_more_lines(body: UnreadBody) -> None:
    stream = HttpLineStream(body, 60.0)
    iterator = iter(stream)
    assert next(iterator) == b"a"
    stream.close()
    assert list(iterator) == []
    stream.close()


def test_the_owner_is_notified_of_the_end_once(body: UnreadBody) -> None:
    ended: list[HttpLineStream] = []
    stream = HttpLineStream(body, 60.0, ended.append)
    with stream:
        assert list(stream) == [b"a", b"b", b"c"]
    stream.close()
    assert ended == [stream]
