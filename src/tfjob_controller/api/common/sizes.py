"""Bounds on the size of an object, which hold before it is decoded.

A megabyte of `{}` becomes 27 MB of Python objects, and a controller keeps all objects in its caches. So a few objects
that one user may create could stop the controller for all users. What counts is the number of bytes and the number of
values (each costs up to some 200 bytes) of a spec, the bytes of the lists in metadata that are read, and the number of
values of a status, which administrators of a namespace may write.

Pure, for any thread. Objects of the usual size cost a few microseconds.
"""

from __future__ import annotations

import msgspec

from tfjob_controller.kube import nesting

MAX_SPEC_BYTES = 256 * 1024
MAX_SPEC_VALUES = 10_000
MAX_METADATA_BYTES = 64 * 1024
# Twice what a job with the most replicas has, each of them restarted.
MAX_STATUS_VALUES = 15_000


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    labels: msgspec.Raw = msgspec.Raw(b"")
    owner_references: msgspec.Raw = msgspec.Raw(b"")


class ObjectParts(msgspec.Struct, frozen=True):
    """The parts of an object whose sizes are bounded, as JSON."""

    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")


_decode_parts = msgspec.json.Decoder(ObjectParts).decode


def large_parts(data: bytes) -> ObjectParts | None:
    """Returns the parts of an object if one of them may exceed the bounds, which a look at the whole shows.

    Raises msgspec.DecodeError for what is no object, and RecursionError from about a thousand levels.
    """
    return _decode_parts(data) if is_large(data) else None


def size_problem(parts: ObjectParts, max_values: int = MAX_SPEC_VALUES) -> str:
    """Returns why an object is too large, with the name of the field; empty if it is not."""
    spec = bytes(parts.spec)
    if len(spec) > MAX_SPEC_BYTES:
        return f"spec: must have at most {MAX_SPEC_BYTES:,} bytes, has {len(spec):,}"
    if nesting.has_more_values(spec, max_values):
        return f"spec: must have at most {max_values:,} fields and list entries"
    length = len(bytes(parts.metadata.labels)) + len(bytes(parts.metadata.owner_references))
    if length > MAX_METADATA_BYTES:
        return f"metadata: labels and ownerReferences must have at most {MAX_METADATA_BYTES:,} bytes, have {length:,}"
    return ""


def has_large_status(status: msgspec.Raw) -> bool:
    """Returns whether a status has too many values."""
    return nesting.has_more_values(bytes(status), MAX_STATUS_VALUES)


def is_large(data: bytes) -> bool:
    """Returns whether a part of an object, or the object, may exceed the bounds."""
    return len(data) > MAX_METADATA_BYTES or nesting.has_more_values(data, MAX_SPEC_VALUES)
