"""JSON that is nested deeper than any object of Kubernetes has to be.

The API server takes 10,000 levels wherever a CRD leaves fields open, as in pod templates. msgspec ends with a
RecursionError at about a thousand, and functions of our own that walk through a template do so sooner. So one object
that somebody made on purpose could stop the cache that holds everybody's: what is read of a server goes through here.

Pure, for any thread. No recursion, and one pass over the bytes. Almost all objects have fewer brackets than levels are
allowed, which is all that is looked at then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
DataT = TypeVar("DataT", bytes, bytes | msgspec.Raw)

# A pod template in a job ends at about 20. What walks through one takes up to three frames for a level, of a thousand.
MAX_LEVELS = 200
# What was cut must still be seen to have been too deep.
_KEPT_LEVELS = MAX_LEVELS + 2
# Possessive, and the last quote may be missing: nothing here can make it go back and try again.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{\]}]', re.DOTALL)
_OPEN = b"[{"
_CLOSE = b"]}"
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))


def is_too_deep(data: bytes) -> bool:
    if not _may_be(data):
        return False
    # Without escapes every second piece between quotes is a string: cheaper than to look at each token.
    outside = data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    level = 0
    for bracket in b"".join(outside).translate(None, _ALL_BUT_BRACKETS):
        level += 1 if bracket in _OPEN else -1
        if level > MAX_LEVELS:
            return True
    return False


def truncate(data: bytes) -> bytes:
    """The same with null for what is nested too deep; `is_too_deep` says so of what is left, too."""
    if not _may_be(data):
        return data
    kept: list[bytes] = []
    level = copied = 0
    for token in _TOKENS.finditer(data):
        at = token.start()
        if data[at] in _OPEN:
            if level == _KEPT_LEVELS:
                kept += [data[copied:at], b"null"]
            level += 1
        elif data[at] in _CLOSE:
            level -= 1
            if level == _KEPT_LEVELS:
                copied = at + 1
    return b"".join([*kept, data[copied:]])


def decode_truncated(decode: Callable[[DataT], T], data: DataT) -> T:
    """What `decode` says; of what is nested so deep that it cannot, what is left when that is cut."""
    try:
        return decode(data)
    except RecursionError:
        return decode(truncate(bytes(data)))


def _may_be(data: bytes) -> bool:
    return data.count(b"{") + data.count(b"[") > MAX_LEVELS
