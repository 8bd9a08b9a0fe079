"""The rules of kube/http/linestream.py that need no server. The rest is in test_transport.py."""

from __future__ import annotations

import io

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.kube.http.linestream import HttpLineStream


class Pieces(io.RawIOBase):
    """A body that arrives in the pieces given."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    read1 = read


def lines(pieces: list[bytes]) -> list[bytes]:
    return list(HttpLineStream(urllib3.HTTPResponse(Pieces(pieces), preload_content=False)))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([b"a\n"], [b"a"], id="one piece, one line"),
        pytest.param([b"a\nb\n", b"c\n"], [b"a", b"b", b"c"], id="several lines in a piece"),
        pytest.param([b"a", b"b", b"c\nd", b"e\n"], [b"abc", b"de"], id="a line over several pieces"),
        pytest.param([b"a\n\nb\n"], [b"a", b"", b"b"], id="an empty line"),
        pytest.param([b"a\nb"], [b"a", b"b"], id="a last line without its end"),
        pytest.param([b"a", b"\n"], [b"a"], id="the end alone"),
    ],
)
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes], expected: list[bytes]) -> None:
    assert lines(pieces) == expected


@given(text=st.lists(st.binary(max_size=5).map(lambda b: b.replace(b"\n", b"x")), max_size=8), data=st.data())
def test_any_cut_gives_the_same_lines(text: list[bytes], data: st.DataObject) -> None:
    body = b"".join(line + b"\n" for line in text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert lines(pieces) == text


def test_after_close_there_are_no_more_lines() -> None:
    stream = HttpLineStream(urllib3.HTTPResponse(Pieces([b"a\nb\n", b"c\n"]), preload_content=False))
    iterator = iter(stream)
    assert next(iterator) == b"a"
    stream.close()
    assert list(iterator) == []
    stream.close()


def test_the_owner_is_told_of_the_end_once() -> None:
    ended: list[HttpLineStream] = []
    stream = HttpLineStream(urllib3.HTTPResponse(Pieces([b"a\n"]), preload_content=False), ended.append)
    with stream:
        assert list(stream) == [b"a"]
    stream.close()
    assert ended == [stream]
