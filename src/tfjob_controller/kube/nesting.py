"""Limits the nesting of JSON, and counts its values.

The API server accepts 10,000 levels where a CRD leaves fields open, as in pod templates. msgspec fails with a
RecursionError at about a thousand, and functions that walk through a template do so sooner. So one malicious object
could stop the cache of all objects: everything read from a server is limited here.

Pure, for any thread, without recursion, in one pass over the bytes. Almost all objects have fewer brackets than levels
are allowed; for them only the brackets are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

T = TypeVar("T")
DataT = TypeVar("DataT", bytes, bytes | msgspec.Raw)

# A pod template has about 20. Functions that walk through one need up to three of a thousand stack frames per level.
MAX_LEVELS = 200
# What is too deep must still be recognized as such once it is truncated, also within a list, which adds two levels to
# its objects, or within an event of a watch, which adds one.
_KEPT_LEVELS = MAX_LEVELS + 3
_CHUNK = 64 * 1024
# Most runs of so many bytes stay below or above the levels that are kept, which counting their brackets shows.
_RUN = 128
_OPEN = b"[{"
_CLOSE = b"]}"
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))


def is_too_deep(data: bytes) -> bool:
    if not _may_be(data):
        return False
    level = 0
    for bracket in _outside_strings(data).translate(None, _ALL_BUT_BRACKETS):
        level += 1 if bracket in _OPEN else -1
        if level > MAX_LEVELS:
            return True
    return False


def truncate(data: bytes) -> bytes:
    """The same JSON with null for values that are nested too deep; `is_too_deep` is still true of the result."""
    if not is_too_deep(data):
        return data
    kept = bytearray()
    level = copied = 0
    outside = _with_blank_strings(data)
    for start in range(0, len(outside), _RUN):
        run = outside[start : start + _RUN]
        opened, closed = (run.count(kinds[:1]) + run.count(kinds[1:]) for kinds in (_OPEN, _CLOSE))
        if level + opened <= _KEPT_LEVELS or level - closed > _KEPT_LEVELS:
            level += opened - closed
            continue
        for at, byte in enumerate(run, start):
            if byte in _OPEN:
                if level == _KEPT_LEVELS:
                    kept += data[copied:at]
                    kept += b"null"
                level += 1
            elif byte in _CLOSE:
                level -= 1
                if level == _KEPT_LEVELS:
                    copied = at + 1
    kept += data[copied:]
    return bytes(kept)


def has_more_values(data: bytes, limit: int) -> bool:
    """Returns whether JSON has more than `limit` objects, lists, fields and list entries, give or take one each."""
    if _count(data) <= limit:
        return False
    return _count(_outside_strings(data)) > limit


def _count(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[") + data.count(b",")


def _outside_strings(data: bytes) -> bytes:
    """The same without strings, which is all that counting needs."""
    return b"".join([b"".join(pieces[outside::2]) for pieces, outside in _pieces(data)])


def _with_blank_strings(data: bytes) -> bytes:
    """The same number of bytes, with blanks for strings."""
    blank: list[bytes] = []
    for pieces, outside in _pieces(data):
        pieces[1 - outside :: 2] = [b" " * len(piece) for piece in pieces[1 - outside :: 2]]
        blank.append(b" ".join(pieces))
    return b"".join(blank)


def _pieces(data: bytes) -> Iterator[tuple[list[bytes], int]]:
    """The pieces between quotes, and the number of the first one that is no string; each second one is none.

    They are cheaper than finding each token. As each piece is an object, they come in chunks.
    """
    plain = data.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    outside = 0
    for start in range(0, len(plain), _CHUNK):
        pieces = plain[start : start + _CHUNK].split(b'"')
        following = (outside + len(pieces) - 1) % 2
        yield pieces, outside
        outside = following


def decode_truncated(decode: Callable[[DataT], T], data: DataT) -> T:
    """The result of `decode`; data that is nested too deep for it is truncated first. Raises msgspec.DecodeError."""
    try:
        try:
            return decode(data)
        except RecursionError:
            return decode(truncate(bytes(data)))
    except UnicodeDecodeError as error:
        # msgspec has no error of its own for it.
        raise msgspec.DecodeError(f"JSON is not UTF-8: {error}") from None


def _may_be(data: bytes) -> bool:
    return data.count(b"{") + data.count(b"[") > MAX_LEVELS
