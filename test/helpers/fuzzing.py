"""Untrusted input for parsers: valid documents with mutations, and bounds on the cost of a parser.

A fuzzing target is a property test in `test/property/test_fuzz_*.py`. `make test` tries few examples of it, and
`make test-all` (profile `thorough`) thousands, others in each run.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from helpers.examples import examples

ResultT = TypeVar("ResultT")
ErrorT = TypeVar("ErrorT", bound=Exception)

# Longer inputs find no other defects, but take the time of many short ones.
MAX_BYTES = 200_000

FUZZ = settings(max_examples=examples(2000, fast=45), suppress_health_check=list(HealthCheck))

# Pieces that often break parsers: ends of strings, nesting, numbers out of range, bytes that are not UTF-8.
JSON_TOKENS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"null", b"{}", b"[]", b'{"a":', b'"":"",'),
    *(b"-", b"0", b"9" * 30, b"1e999", b"-1", b"1.5", b"true", b"NaN", b'"metadata"', b'"spec"', b'"status"'),
    *(b"\x00", b"\x1b", b"\xff", b"\xc2", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", "\N{PARTY POPPER}".encode()),
)

# Mutations are mostly few and small, since parsers refuse most others at their first byte.
_MUTATIONS = st.sampled_from([1, 1, 1, 2, 3, 6])
_COUNTS = st.sampled_from([1, 1, 1, 1, 2, 20, 200, 1000, 20_000])
_REMOVED = st.sampled_from([0, 0, 0, 1, 12])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def mutations(draw: st.DrawFn, valid: Sequence[bytes], tokens: Sequence[bytes] = JSON_TOKENS) -> bytes:
    """A valid document, or any bytes, with up to six pieces inserted, removed or repeated, also very often."""
    data = draw(st.sampled_from(valid) | st.binary(max_size=64))
    for _ in range(draw(_MUTATIONS)):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(_REMOVED))
        piece = draw(st.sampled_from(tokens) | st.binary(max_size=4) | st.just(data[begin:end]))
        data = data[:begin] + (piece * draw(_COUNTS))[:MAX_BYTES] + data[end:]
    return data[:MAX_BYTES]


@st.composite
def documents(draw: st.DrawFn, valid: Sequence[Any]) -> bytes:
    """A valid JSON document in which up to three values are others, or the bytes of one with mutations."""
    if draw(st.booleans()):
        return draw(mutations([json.dumps(each).encode() for each in valid]))
    document = json.loads(json.dumps(draw(st.sampled_from(valid))))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(_places(document))))
        holder[key] = draw(json_values)
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each container of a document with each of its keys."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield value, key
        yield from _places(child)


@st.composite
def pieces_of(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes as they may arrive: in up to eight pieces of any length."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=7)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@contextmanager
def bounded(size: int, *, bytes_each: int = 100) -> Iterator[None]:
    """Fails if the block takes more time or memory than is linear in an input of `size` bytes.

    A quadratic parser needs minutes for the longest inputs. The bounds allow for a slow machine and for tracemalloc.
    """
    tracemalloc.start()
    begin = time.thread_time()
    try:
        yield
        seconds, (_, peak) = time.thread_time() - begin, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seconds < 2.0 + size * 2e-5, f"{seconds:.1f} s of CPU for {size} bytes"
    assert peak < 4_000_000 + size * bytes_each, f"{peak} bytes of memory for {size} bytes"


def outcome(call: Callable[[], ResultT], refusal: type[ErrorT]) -> ResultT | ErrorT:
    """Returns the result, or the one type of error that the parser documents; any other one is raised."""
    try:
        return call()
    except refusal as error:
        return error
