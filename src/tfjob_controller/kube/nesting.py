"""Limits the nesting of JSON, and counts its values.

The API server accepts 10,000 levels where a CRD leaves fields open, as in pod templates. msgspec fails with a
RecursionError at about a thousand, and functions that walk through a template do so sooner. So one malicious object
could stop the cache of all objects: everything read from a server is limited here.

Pure, for any thread, without recursion, in one pass over the bytes. Almost all objects have fewer brackets than levels
are allowed; for them only the brackets are counted. Otherwise the bytes are counted in runs, and single ones are looked
at only where the level of a truncated value begins or ends.
"""

from __future__ import annotations

import itertools
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
# msgspec decodes as many below some hundred frames of its callers. Only what exceeds them is truncated, since it takes
# this many bytes: a megabyte has few values to truncate, whatever it is.
_DECODED_LEVELS = 600
_CHUNK = 64 * 1024
# For most runs of this size, the numbers of brackets suffice. Fewer bytes than lie between the levels above.
_RUN = 256
_OPEN = b"[{"
_CLOSE = b"]}"
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))
_BLANK = bytes(ord(" ") if byte in _OPEN + _CLOSE else byte for byte in range(256))
# As signed bytes: what each byte adds to the level.
_STEPS = bytes(1 if byte in _OPEN else 255 if byte in _CLOSE else 0 for byte in range(256))


def is_too_deep(data: bytes) -> bool:
    if not _may_be(data):
        return False
    level = 0
    for pieces, outside in _pieces(data):
        levels = list(_levels(b"".join(pieces[outside::2]).translate(None, _ALL_BUT_BRACKETS), level))
        if max(levels) > MAX_LEVELS:
            return True
        level = levels[-1]
    return False


def truncate(data: bytes) -> bytes:
    """The same JSON with null for values that are nested too deep to be decoded; `is_too_deep` is true of the result.

    Data that can be decoded is returned as it is, also if it is too deep.
    """
    kept, copied = bytearray(), 0
    for begin, end in _undecodable(_without_brackets_in_strings(data)):
        kept += data[copied:begin]
        kept += b"null"
        copied = end
    kept += data[copied:]
    return bytes(kept)


def _undecodable(outside: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of the values below `_KEPT_LEVELS` that contain about `_DECODED_LEVELS`."""
    level, begin = 0, None
    # Begin and level of the runs in which the level may have exceeded the kept ones for the last time.
    runs: list[tuple[int, int]] = []
    for start in range(0, len(outside), _RUN):
        run = outside[start : start + _RUN]
        opened, closed = (run.count(kinds[:1]) + run.count(kinds[1:]) for kinds in (_OPEN, _CLOSE))
        if begin is not None and level - closed <= _KEPT_LEVELS:
            levels = list(_levels(run, level))
            if _KEPT_LEVELS in levels:
                yield begin, start + levels.index(_KEPT_LEVELS)
                begin = None
        if begin is None:
            if level <= _KEPT_LEVELS:
                runs.clear()
            runs.append((start, level))
            if level + opened > _DECODED_LEVELS:
                begin = _last_begin(outside, runs)
                runs.clear()
        level += opened - closed
    if begin is not None:
        yield begin, len(outside)


def _last_begin(outside: bytes, runs: list[tuple[int, int]]) -> int:
    """Where the level exceeds the kept ones for the last time."""
    for start, level in reversed(runs):
        run = outside[start : start + _RUN]
        if level - run.count(_CLOSE[:1]) - run.count(_CLOSE[1:]) <= _KEPT_LEVELS:
            levels = list(_levels(run, level))[::-1]
            if _KEPT_LEVELS in levels:
                return start + len(run) - levels.index(_KEPT_LEVELS)
    return runs[0][0]


def _levels(data: bytes, before: int = 0) -> Iterator[int]:
    """The level before each byte, and the last one."""
    return itertools.accumulate(memoryview(data.translate(_STEPS)).cast("b"), initial=before)


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


def _without_brackets_in_strings(data: bytes) -> bytes:
    """The same number of bytes, with blanks for the brackets in strings."""
    blank: list[bytes] = []
    for pieces, outside in _pieces(data):
        if strings := pieces[1 - outside :: 2]:
            pieces[1 - outside :: 2] = b'"'.join(strings).translate(_BLANK).split(b'"')
        blank.append(b'"'.join(pieces))
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
